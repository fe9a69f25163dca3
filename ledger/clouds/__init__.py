"""The clouds: the port that the poller speaks to, and one adapter a provider."""
