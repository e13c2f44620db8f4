"""Only backends/simd/vec names instructions: kernels are written with the operations of vec.h.

Elsewhere in the backends there are no intrinsics, no vector types, no headers of either and no
tests for an instruction set. Nor may a number of lanes stand for one: a kernel uses the properties
that vec.h documents, and where it compares LANES with a size (LANES <= 8, say), several instruction
sets could fit. LANES == 16 would mean AVX-512, and its #else AVX2.

Usage: instructions.py SOURCE_ROOT
"""
import pathlib
import re
import sys

RAW = re.compile(
    r"\b_mm\w*"  # x86: _mm256_add_ps
    r"|\b__m(?:64|128|256|512|mask)\w*"
    r"|\b(?:u?int|float|bfloat)\d+x\d+(?:x\d+)?_t\b|\bv\w+q?_[fsup](?:8|16|32|64)\b"  # Arm
    r"|<(?:\w*intrin|arm_\w+)\.h>"
    r"|\b__(?:AVX|SSE|FMA__|F16C|AMX_|ARM_)\w*"
)
SET_BY_LANES = re.compile(r"\bLANES\s*[=!]=\s*16\b|\b16\s*[=!]=\s*LANES\b")


def code_of(text):
    """The text with comments and strings blanked, so that lines keep their numbers."""
    blank = lambda m: re.sub(r"[^\n]", " ", m.group(0)) if m.group(0)[0] in "/\"" else m.group(0)
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S)


def found(text):
    code = code_of(text)
    for pattern, what in ((RAW, "names an instruction set"), (SET_BY_LANES, "stands for one")):
        for match in pattern.finditer(code):
            yield code.count("\n", 0, match.start()) + 1, match.group(0), what


# The checks find what they are for, and accept what they should.
WRONG = ["x = _mm256_add_ps(a, b);", "__m512i t;", "__mmask16 m;", "#include <immintrin.h>", "#ifdef __AVX512F__",
         "float32x4_t x = vaddq_f32(a, b);", "#if LANES == 16", "16 == LANES"]
RIGHT = ["/* _mm256_add_ps */", 'puts("__AVX2__");', "#if LANES == 8", "LANES <= 8", "v_add(a, b)", "#ifdef __GNUC__",
         "heed_load(HEED_F16, p, 0)"]


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    bad = [text for text in WRONG if not list(found(text))] + [text for text in RIGHT if list(found(text))]
    for text in bad:
        print(f"the check is wrong about: {text}")
    n_bad, files = len(bad), 0
    for path in sorted((root / "backends").rglob("*.[ch]")):
        name = path.relative_to(root)
        if name.parts[:3] == ("backends", "simd", "vec"):
            continue
        files += 1
        for line, what, why in found(path.read_text()):
            print(f"{name}:{line}: {what} {why}")
            n_bad += 1
    print(f"{files} files, {n_bad} against the rule")
    return n_bad != 0 or files == 0


sys.exit(main())
