"""The engines for graphs and workflows, and what both share."""
