#!/bin/bash
# Runs what $SOCKDRAWER_RUN says, ends with its exit code, and appends its table to the summary of the job.
set -uo pipefail
: "${SOCKDRAWER_RUN:?say what to run, as in: load ping 127.0.0.1:9000 --threshold p99<5ms}"
program=${SOCKDRAWER_PROGRAM:-sockdrawer}

# xargs reads words as a shell does, and carries out nothing that is in them.
mapfile -d '' -t words < <(xargs printf '%s\0' <<< "$SOCKDRAWER_RUN")
said=$("$program" "${words[@]}" --junit "${SOCKDRAWER_JUNIT:-sockdrawer.xml}" 2>&1 | tee /dev/stderr)
code=$?
{
    printf '### %s\n\n```text\n' "sockdrawer $SOCKDRAWER_RUN"
    # Of a line that was written again and again, its last form.
    printf '%s\n' "$said" | sed 's/.*\r//'
    printf '```\n'
} >> "${GITHUB_STEP_SUMMARY:-/dev/stdout}"
exit "$code"
