"""`kmem bench` runs this file as `python3 FOLDER ROOT ARGUMENT...`. ROOT is the project's tree, or empty without a
tree."""
import signal
import sys
from pathlib import Path

# Until the driver handles stops, Ctrl-C ends the process like any program: without a traceback.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
if sys.version_info < (3, 11):
    sys.exit(f"kmem bench: needs Python 3.11 or later, and {sys.executable} is {sys.version.split()[0]}")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from driver.main import main  # noqa: E402
main(sys.argv[1], sys.argv[2:])
