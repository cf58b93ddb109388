"""Where it is said which packages are wanted: a folder that is watched, and the registry in the database."""
