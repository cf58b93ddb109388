-- The role of Tidemill is not a superuser: row-level security separates tenants for it.
\getenv password TIDEMILL_PASSWORD
CREATE ROLE tidemill LOGIN PASSWORD :'password';
CREATE DATABASE tidemill OWNER tidemill;
