#!/bin/sh
# Prints the files of the specimen, sorted. No patch touches this script: it must stay
# executable.
cd "$(dirname "$0")/.." && find . -type f | LC_ALL=C sort
