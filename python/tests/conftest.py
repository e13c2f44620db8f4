"""Nothing in the environment changes what is tested; tests of features that the library does not serve are skipped."""

import os

for name in [n for n in os.environ if n.startswith(("HEED_", "OMP_"))]:
    if name != "HEED_BACKEND":  # a setup may run the suite on one backend
        del os.environ[name]
