#!/usr/bin/env bash
# Stands for a program of a bundle, the one that it is named as. As `runner` it gives made-up figures. As a program of tests
# it has tests that pass, are skipped, fail, fault as a GPU does, hang, crash, print what is no text, and never stop to print.
name=$(basename "$0")

tests() {
    case $name in
        ops) echo "cuda::agrees::good cuda::agrees::wrong cuda::agrees::faults cuda::agrees::hangs cuda::agrees::crashes cuda::agrees::later cuda::agrees::part cuda::cuda_through_cust" ;;
        golden_cuda) echo "losses garbage" ;;
        cuda) echo "engine::bits engine::emulated engine::babbles" ;;
        cuda_cli) echo "bench::good missing" ;;
    esac
}

passes() {
    printf 'running 1 test\ntest %s ... %s\nok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored\n' "$1" "${2:-case one}"
}

# A training that comes to the same whatever it is asked for, but where $PLANTED_FAULT is among its options: then the weights
# have other bits, the losses stay high, and the accuracy low.
train() {
    local all=" $* " out=
    while [ $# -gt 0 ]; do
        case $1 in
            --out | --resume) out=$2 ;;
        esac
        shift
    done
    mkdir -p "$out"
    local weights=AAAA losses="2.0 1.0 0.5" accuracy=0.991
    case $all in
        *"${PLANTED_FAULT:-nothing at all}"*) weights=AAAB losses="2.0 2.0 2.0" accuracy=0.94 ;;
    esac
    for loss in $losses; do
        echo "{\"kind\":\"step\",\"loss\":$loss}"
    done >"$out/metrics.jsonl"
    echo "{\"kind\":\"epoch\",\"val_accuracy\":$accuracy,\"samples_per_s\":64000.0}" >>"$out/metrics.jsonl"
    local header='{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    printf "\\x$(printf %02x ${#header})\\0\\0\\0\\0\\0\\0\\0%s%s" "$header" "$weights" >"$out/last.safetensors"
}

if [ "$name" = runner ]; then
    case $1 in
        devices)
            if [ "${2:-}" = --json ]; then
                echo '{"devices":[{"name":"cpu","model":"a CPU"},{"name":"cuda:0","model":"a GPU"}],"cuda":{"available":true,"driver_release":"580.1","driver_cuda":"13.0"},"libraries":[{"name":"cuDNN","version":"9.1","used":true}]}'
            else
                printf 'cpu\ncuda:0\n'
            fi
            ;;
        bench) echo '{"step_ms":2.0,"transfer_ms":0.5,"compute_ms":1.5,"wait_ms":0.5,"peak_bytes":1048576,"device":"cuda:0"}' ;;
        eval) echo '{"accuracy":0.99}' ;;
        train) train "$@" ;;
        export) cp "$2" "$3" ;;
    esac
    exit 0
fi

if [ "$1" = --list ]; then
    for test in $(tests); do
        echo "$test: test"
    done
    exit 0
fi

test=$2
# Behind the case that ended it, a test goes on.
if [ -n "${RUNNER_TEST_AFTER:-}" ]; then
    case $test in
        *crashes)
            # One case after the other ends it.
            printf 'test %s ... case behind %s\n' "$test" "$RUNNER_TEST_AFTER"
            kill -SEGV $$
            ;;
    esac
    passes "$test" "case behind $RUNNER_TEST_AFTER"
    exit 0
fi
case $test in
    *wrong)
        printf 'test %s ... case first\nFAILED first: element 3 is 1, not 2\ncase second\ncases done\n' "$test"
        echo "test result: FAILED. 0 passed; 1 failed"
        exit 101
        ;;
    *faults)
        printf 'test %s ... case first\ncase second\n' "$test"
        printf "thread 'main' panicked at tests/suites/ops/parity.rs:1:2:\ncomputing failed: CUDA_ERROR_ILLEGAL_ADDRESS (700)\n" >&2
        exit 101
        ;;
    *hangs)
        # What it starts hangs as well, and neither ends when it is asked to.
        trap '' TERM
        printf 'test %s ... case endless\n' "$test"
        sleep 600 &
        echo "$$ $!" >"$PLANTED/hangs"
        wait
        ;;
    *crashes)
        printf 'test %s ... case first\n' "$test"
        kill -SEGV $$
        ;;
    *babbles) yes "$(printf 'x%.0s' {1..5000})" ;;
    *part) passes "$test" $'case one\ncase two\nskipped: only the emulated driver can do that\ncases left out: 7\ncases done' ;;
    *emulated) passes "$test" "skipped: only the emulated driver can do that" ;;
    *missing) printf 'running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored\n' ;;
    *garbage) printf '\xff\xfe\n' && passes "$test" ;;
    *) passes "$test" ;;
esac
