"""`python -m distcompile.demo`, alone or under distcompile-run: the demo's straight line of steps.

    text -> model, DDP, compile -> training -> sample -> parity -> overlap -> where the time went -> exit code

Exit code 1 if the held-out loss did not fall, or if a compiled gradient is not as good as the eager one.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, fields
from pathlib import Path

import distcompile as torch
from distcompile.commands.options import Parser
from distcompile.demo import report
from distcompile.demo.display import Display
from distcompile.demo.sampling import sample
from distcompile.demo.text import Corpus, english_text, make_corpus
from distcompile.demo.training import DemoRun, DemoSettings, Trainer
from distcompile.parity import ParityReport

SAMPLE_CHARACTERS = 240


def parse(argv: list[str]) -> tuple[DemoSettings, argparse.Namespace]:
    """The settings, and the options that do not change the training."""
    parser = Parser(prog="python -m distcompile.demo", description="A small GPT learns English.")
    for knob in fields(DemoSettings):
        default = knob.default
        option = "--" + knob.name.replace("_", "-")
        parser.add_argument(option, type=type(default), default=default, help=f"default {default}")
    parser.add_argument("--sample", type=int, default=SAMPLE_CHARACTERS, help="characters to generate")
    parser.add_argument("--no-parity", action="store_true", help="leave out the gradient check")
    parser.add_argument("--json", default="", metavar="FILE", help="write the results there, from rank 0")
    options = parser.parse_args(argv)
    return DemoSettings(**{knob.name: getattr(options, knob.name) for knob in fields(DemoSettings)}), options


def announce(settings: DemoSettings, display: Display) -> None:
    """What is about to be done, before anything that takes a while."""
    ranks = torch.distributed.get_world_size()
    display.say(
        f"{ranks} rank{'s' * (ranks > 1)} of {settings.batch} x {settings.time} characters a step, "
        f"backend {settings.backend}"
    )


def introduce(settings: DemoSettings, corpus: Corpus, run: DemoRun, display: Display) -> None:
    """What is about to be trained."""
    parameters = sum(p.numel() for p in run.module.parameters())
    display.say(
        f"GPT, {settings.layers} layers of width {settings.width}, {parameters:,} parameters, "
        f"{corpus.training.size:,} characters of English"
    )


def results(settings: DemoSettings, run: DemoRun, parity: ParityReport | None) -> dict[str, object]:
    """Everything a script may want, as plain data."""
    return {
        "settings": asdict(settings),
        "world_size": torch.distributed.get_world_size(),
        "losses": run.losses,
        "held_out": run.held_out,
        "tokens_per_s": run.tokens_per_s,
        "first_step_s": run.first_step_s,
        "step_ms": report.step_parts_ms(run),
        "overlap": run.model.overlap_report().to_dict(),
        "parity_ok": None if parity is None else parity.ok,
    }


def main(argv: list[str]) -> int:
    """Run the demo; returns the exit code."""
    settings, options = parse(argv)
    torch.distributed.init_process_group()
    rank = torch.distributed.get_rank()
    display = Display(settings.steps, rank)
    announce(settings, display)
    with display:
        corpus = make_corpus(english_text())
        trainer = Trainer(settings, corpus)
        introduce(settings, corpus, trainer.result, display)
        run = trainer.run(display)
        if rank == 0 and options.sample:
            with display.task_of("writing a sample") as say:
                written = sample(run.module, corpus, options.sample, settings.seed, say=say)
            display.say(report.sample_panel(*written))
        torch.distributed.barrier()
        with display.task_of("parity") as say:
            parity = None if options.no_parity else report.check_parity(run, trainer, say)
    if parity is not None:
        display.say(report.parity_table(parity))
    display.say(*report.tables(run))
    verdict, ok = report.verdict(run, parity)
    display.say(verdict)
    if rank == 0 and options.json:
        Path(options.json).write_text(json.dumps(results(settings, run, parity), indent=1) + "\n")
    torch.distributed.destroy_process_group()
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
