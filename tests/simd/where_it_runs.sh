#!/bin/sh
# where_it_runs.sh PROBE COMMAND...: runs the command, or skips the test (77) where PROBE --here
# does.
"$1" --here || exit $?
shift
exec "$@"
