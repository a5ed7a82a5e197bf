"""The replay adapter: recorded answers and stored score matrices."""
