"""Judges of stacks, trees and installs. Nothing here writes into what it judges."""
