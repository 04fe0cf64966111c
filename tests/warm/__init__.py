"""Processes that are forked from one that has imported torch and transformers, instead of started anew."""
