# Read by the build of the image and by its entry point: names the processor that kernels are compiled for, so that those
# in the image are of use on any machine that has its instructions. On others they are compiled for that machine.
#   x86_64   x86-64-v3: Haswell (2013), Zen (2017) and later
#   others   the oldest of their architecture
if [ -z "${NUMBA_CPU_NAME:-}" ]; then
    case "$(uname -m)" in
        x86_64)
            flags=" $(grep -m1 '^flags' "${CPUINFO:-/proc/cpuinfo}" || true) "
            named=x86-64-v3
            for flag in avx2 bmi1 bmi2 f16c fma abm movbe; do
                case "$flags" in *" $flag "*) ;; *) named= ;; esac
            done
            ;;
        *) named=generic ;;
    esac
    if [ -n "$named" ]; then
        # No features besides those of the name; unset, Numba would add all that this machine has.
        export NUMBA_CPU_NAME="$named" NUMBA_CPU_FEATURES=
    fi
fi
