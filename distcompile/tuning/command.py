"""The command `distcompile tune`: tune a target on the ranks that the launcher started, show and keep the result.

    distcompile-run -n 2 -m distcompile tune model.py:factory [--output plan.json] [--picture tuning.png] [--json]

In: the command line; the target is what `distcompile parity` takes. Out on rank 0: progress on stderr, the table and
the verdict (or JSON) on stdout, a plan file, a picture. Exit code 0, or 2 for a target that cannot be tuned.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from distcompile.commands.options import above_zero, writable

if TYPE_CHECKING:
    from distcompile.tuning.tune_report import TuneReport

DESCRIPTION = "measure bucket plans for a model on these ranks, recommend one, write a plan file and a picture"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `distcompile tune`."""
    parser.add_argument("target", help="package.module:factory or script.py:factory, as for parity")
    parser.add_argument(
        "--budget-s", type=above_zero, default=60.0, help="seconds after the first compilation (default 60)"
    )
    parser.add_argument("--caps-mb", type=_numbers, default=None, help="bucket caps to compare, in MiB: 1,5,25")
    parser.add_argument("--optimizer", default="adamw", choices=("adamw", "sgd"), help="default adamw")
    parser.add_argument("--backend", default="codegen", help="codegen (default), triton or aot_eager")
    parser.add_argument(
        "--output", type=writable, default="bucket_plan.json", help="the plan file (default bucket_plan.json)"
    )
    parser.add_argument(
        "--picture", type=writable, default="bucket_plan.png", help="step time against bucket size (bucket_plan.png)"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(above_zero(part) for part in text.split(","))


def run(options: argparse.Namespace) -> int:
    """Collective over the ranks that the launcher started."""
    from distcompile import distributed
    from distcompile.parity.errors import BackendNameError, ParityTargetError
    from distcompile.parity.target import check_backend_name, load_target, users_traceback
    from distcompile.showing.progress import make_console, progress
    from distcompile.tuning.errors import TuningError
    from distcompile.tuning.tune import CAPS_MB, TuneOptions, tune

    distributed.init_process_group()
    try:
        target = load_target(options.target)
        check_backend_name(options.backend)
        chosen = TuneOptions(options.budget_s, options.caps_mb or CAPS_MB, options.optimizer, options.backend)
        console = make_console(stderr=True) if distributed.get_rank() == 0 else None
        with progress(console, lines_every_s=0.0) as say:
            report = tune(target.module, target.inputs, target.loss, chosen, say)
        if distributed.get_rank() == 0:
            keep(report, options)
    except (BackendNameError, ParityTargetError, TuningError) as error:
        cause = users_traceback(error) if isinstance(error, ParityTargetError) else ""
        print(f"{cause}distcompile: {error}", file=sys.stderr)
        return 2
    finally:
        distributed.destroy_process_group()
    return 0


def keep(report: TuneReport, options: argparse.Namespace) -> None:
    """Print the report, write the plan file and the picture."""
    from distcompile.errors import MissingExtraError
    from distcompile.tuning.plan_file import save_plan
    from distcompile.tuning.tune_plot import plot_tuning

    print(json.dumps(report.to_dict()) if options.json else report)
    save_plan(options.output, report.record())
    written = [f"{options.output}: load it with DistributedDataParallel(model, bucket_plan={options.output!r})"]
    try:
        plot_tuning(report, Path(options.picture))
        written.append(f"{options.picture}: step time against bucket size")
    except MissingExtraError as error:
        written.append(f"no picture: {error.what}; {error.remedy}")
    print("\n".join(written), file=sys.stderr if options.json else sys.stdout)
