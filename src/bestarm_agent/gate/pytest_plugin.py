"""Nothing: installations made before name this module as an entry point of pytest."""
