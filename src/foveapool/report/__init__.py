"""Figures, tables and pages, made from operators and rows; nothing is ever run from here."""
