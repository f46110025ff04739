"""Recipes: what a captured call returned and left behind, described so that every later call can make the like."""
