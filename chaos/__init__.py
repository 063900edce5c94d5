"""The experiment: kill points, faults, receipts, controller, auditor, report and command line.

Code under test needs one name: `from chaos import reached`, then `reached("user.my_point")`. It does nothing
outside an experiment. Importing this package imports neither ray nor torch.
"""

from chaos.hook import reached

__all__ = ["reached"]
