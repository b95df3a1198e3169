//! The reference page of the job file: prose around the table that the types yield.

use super::{keys::NOT_BUILT, schema::reference_table};
use crate::capture::{DEFAULT_EXCLUDES, SECRET_NAMES};

const OPENING: &str = r#"# The job file

Made from the types (`UPDATE_GOLDEN=1 cargo test -p footplate-cli --test it`); do not edit by hand. The same as a JSON Schema:
[`docs/schema/job.schema.json`](../schema/job.schema.json).

A job file says what is run, what it needs and why. The smallest one:

```yaml
apiVersion: footplate/v1
kind: Job
name: digits
run: python train.py
resources: {slots: 2}
```

`footplate submit job.yaml` sends it; `--dry-run` prints the resolved document and what would be captured, and sends nothing. A file is at most
1 MiB. Every fault is told at once, each with its path; an unknown key is refused with the nearest known one, a planned one by name; the exit
code is then 2.

## How values are read

- Null is `~`, `null` or nothing; `true` and `false` are booleans; `yes`, `no`, `on` and `off` are text.
- Decimals without a leading zero, and `0x`, `0o`, `0b`, are whole numbers. A point or an exponent makes a float, and it stays one: `3.0`,
  `1e-4`, `2E5`, `.5`. Everything else is text: `010`, `1_000`, `12:30`; so is whatever stands in quotes.
- Infinity and not-a-number are refused: the program's config is JSON, which has neither. Keys are text; quote a numeric one.
- The rule is the same in a file, in a file named by `extends`, and for `--set path.to.key=value` (a key with a dot in double quotes:
  `--set 'config."model.type"=x'`). `--set` may be given many times; the last wins.
- Sizes and durations need a unit: `B`, `KiB`, `MiB`, `GiB`, `TiB`, `KB`, `MB`, `GB`, `TB`; `ms`, `s`, `m`, `h`, `d`, also joined (`1h30m`).
- Values of `labels` and `env.vars`, and the words of a `run` list, are text: quote numbers.
- An empty section is an absent one. Inside `config`, null is a value.
- `extends` merges section by section; lists and single values are replaced. A chain is at most 8 files long.

The resolved document (everything merged, short forms made long) is stored with its SHA-256, less what looks like a secret.

## Keys

"#;

const SOURCE: &str = r#"
A bare word stands for `launcher.type` and for `queue.name`; one name stands for a list of one in `resources.gpu.model` and in `after`, where `ID`
and `ID:failure` stand for an item. `entrypoint` and
`command` are other words for `run`; `commands` is a list of lines, run one after the other until one fails.

## What is captured

The whole repository around the job file (or the folder that `source.git` names), as it lies in the working tree: changed, staged and untracked
files, submodules inside submodules. What `.gitignore` or a `.footplateignore` (same syntax, any folder; it also leaves out tracked files) names
is left out. Without git, or with `source.path`, it is the folder alone. The run starts in the folder where you stood, relative to the
repository's top. Nothing of yours is changed: index, tree, stash and HEAD stay byte for byte.

Set-up and workers find `FOOTPLATE_COMMIT`, `FOOTPLATE_BRANCH` (absent without git) and `FOOTPLATE_TREE` in their environment, since there is
no `.git` on the node. The tree digest knows names, modes and contents, no times: the same content is never sent twice.

Limits: `source.max_untracked` for files git does not track (told with the largest folders and the line that cures it), 500,000 files and 4 GiB
of content in all. Links that are absolute or lead outside are refused by name.

Unless git tracks them, these are left out:

"#;

const SECRETS: &str = r#"
These names look like secrets and are refused, tracked or not, at every depth and without regard to case, unless `source.allow` names them
(a line with `!` is an exception). Ignored files are not captured and so not refused:

"#;

const NOT_BUILT_OPENING: &str = r#"
## Known, not built yet

These are refused by name, so that no file is half understood:

"#;

/// The page, in Markdown.
pub fn reference_page() -> String {
    let block = |lines: &str| format!("```gitignore\n{lines}```\n");
    let planned: Vec<String> = NOT_BUILT.iter().map(|key| format!("`{}`", key.replacen('=', ": ", 1))).collect();
    format!(
        "{OPENING}{}{SOURCE}{}{SECRETS}{}{NOT_BUILT_OPENING}{}.\n",
        reference_table(),
        block(DEFAULT_EXCLUDES),
        block(SECRET_NAMES),
        wrapped(&planned.join(", "), 140)
    )
}

fn wrapped(text: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(", ") {
        let line = lines.last_mut().expect("it begins with one line");
        if line.len() + word.len() + 2 > width {
            line.push(',');
            lines.push(word.to_owned());
        } else if line.is_empty() {
            line.push_str(word);
        } else {
            line.push_str(", ");
            line.push_str(word);
        }
    }
    lines.join("\n")
}
