#!/bin/sh
# run.sh RUNS [TARGET...]: fuzzes each target (all by default) with that many executions, on stable Rust.
# With 0 executions it only builds them. What is found worth keeping goes to work/TARGET; a crashing input to artifacts/TARGET.
# Ends with 1 after a crash.
set -u
cd "$(dirname "$0")" || exit 1
runs=${1:?usage: run.sh RUNS [TARGET...]}
shift
[ $# -gt 0 ] || set -- message response filter dn url ldif control record access sasl
host=$(rustc -vV | sed -n 's/^host: //p')
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Ccodegen-units=1"
cargo build --quiet --release --target "$host" || exit 1
[ "$runs" = 0 ] && exit 0
failed=0
for target in "$@"; do
    mkdir -p "work/$target" "artifacts/$target"
    if "target/$host/release/$target" "work/$target" "corpus/$target" -runs="$runs" -max_len=4096 -timeout=10 \
        -rss_limit_mb=1024 -artifact_prefix="artifacts/$target/" -verbosity=0 -print_final_stats=1 \
        >"work/$target.log" 2>&1 && executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "work/$target.log") \
        && [ "${executions:-0}" -gt 0 ]; then
        echo "$target: $executions executions, no failure"
    else
        echo "$target: FAILED"
        tail -n 30 "work/$target.log"
        failed=1
    fi
done
exit $failed
