"""Devices and processes: which compute, how several start, meet, agree and end together."""
