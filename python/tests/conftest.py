"""Nothing of the environment changes what is tested; features that the library does not serve are skips."""

import os

for name in [n for n in os.environ if n.startswith(("HEED_", "OMP_"))]:
    if name != "HEED_BACKEND":  # a setup may run the suite on one backend
        del os.environ[name]
