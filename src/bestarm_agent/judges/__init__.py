"""How the judges in the root `judges/` catalogue score a reply."""
