"""Doors: samples in each trainer's own fields, one small module for each record, none of which imports its trainer."""
