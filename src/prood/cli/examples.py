"""One command to copy for each command, with which its help begins."""

from typer import Typer

EXAMPLES = {
    "quickstart": "prood quickstart",
    "guard": "prood guard model.onnx --inside photos/ --outside others/ --run runs/guarded",
    "init": "prood init model.onnx --inside photos/ --outside others/ --out guard.toml",
    "combine": "prood combine model.onnx --discriminator runs/discriminator --shift 3 --run runs/joint",
    "predict": "prood predict photo.png --model cifar10",
    "calibrate": "prood calibrate runs/prood digits:validation --accept 0.95",
    "certify": "prood certify photo.png --model cifar10 --eps 0.01 --out certificates.jsonl",
    "verify": "prood verify certificates.jsonl",
    "score": "prood score photos/ --model cifar10 --eps 0.01 --out scores",
    "serve": "prood serve cifar10",
    "export": "prood export cifar10 cifar10.onnx",
    "data list": "prood data list",
    "data fetch": "prood data fetch cifar10 svhn",
    "data check": "prood data check cifar10",
    "data preview": "prood data preview digits:test --out digits.png",
    "recipes": "prood recipes quickstart",
    "train": "prood train discriminator --recipe quickstart --run runs/discriminator",
    "committee": "prood committee --discriminator runs/1 --discriminator runs/2 --inside digits:test --run runs/12",
    "evaluate": "prood evaluate cifar10 --outside smooth,uniform --eps 0.01 --limit 100",
    "compare": "prood compare --recipe quickstart --methods acet,prood-s",
    "report": "prood report runs/quickstart",
    "info": "prood info cifar10",
    "reproduce cifar10": "prood reproduce cifar10 --fast",
    "reproduce cifar100": "prood reproduce cifar100 --fast",
    "reproduce rimgnet": "prood reproduce rimgnet",
    "reproduce table": "prood reproduce table 1 --recipe quickstart",
    "reproduce figure": "prood reproduce figure shift --recipe quickstart",
    "reproduce all": "prood reproduce all --recipe quickstart",
    "reproduce claims": "prood reproduce claims results/cifar10/cifar100/shipped-0.json --model cifar10 --outside svhn",
    "reproduce asymptotics": "prood reproduce asymptotics cifar10 --outside uniform",
    "reproduce pages": "prood reproduce pages results --docs docs",
}


def add_examples(app: Typer, words: str = "") -> None:
    """Begin each command's help with its example; the lists of commands show only the first sentence."""
    for info in app.registered_commands:
        assert info.callback is not None
        name = words + (info.name or info.callback.__name__)
        if not info.hidden:
            text = [" ".join(part.split()) for part in (info.callback.__doc__ or "").split("\n\n")]
            info.short_help, info.help = text[0], "\n\n".join([f"Example: {EXAMPLES[name]}", *text])
    for group in app.registered_groups:
        assert group.typer_instance is not None
        add_examples(group.typer_instance, f"{group.name} ")
