"""OpenID Connect: people sign in at an issuer, and programs bring its tokens. Needs the extra `oidc`."""
