//! `run tag`: sets tags (`key=value`) and removes them (`key-`).

use crate::{
    call,
    context::{Context, find_run_id, seen},
    output::{Exit, Failure},
};
use footplate_api::v1;
use std::collections::BTreeMap;

const EXAMPLES: &str = "\
Examples:
  footplate run tag 0190f3a2 team=vision good=yes
  footplate run tag 0190f3a2 good-";

/// Set or remove tags of a run.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Id of the run, or a unique prefix of it
    #[arg(value_name = "RUN")]
    pub run: String,
    /// key=value sets a tag, key- removes it
    #[arg(required = true, value_name = "TAG")]
    pub tags: Vec<String>,
}

/// Writes the tags.
///
/// # Errors
/// A tag that is none, no such run, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let (set, removed) = parse(&args.tags)?;
    let client = ctx.client()?;
    let run_id = find_run_id(&client, &args.run).await?;
    let request_id = footplate_clock::request_id().to_string();
    let message = v1::SetTagsRequest { project: client.project().to_owned(), run_id: run_id.clone(), set, removed, request_id };
    let answer = call!(client, runs.set_tags(message))?;
    seen(&ctx, &client, &run_id, answer.sequence).await;
    ctx.output.one(&run_id, &serde_json::json!({"runId": run_id, "sequence": answer.sequence}), &format!("{run_id} tagged\n"))?;
    Ok(Exit::Done)
}

fn parse(tags: &[String]) -> Result<(BTreeMap<String, String>, Vec<String>), Failure> {
    let mut set = BTreeMap::new();
    let mut removed = Vec::new();
    for tag in tags {
        match (tag.split_once('='), tag.strip_suffix('-')) {
            (Some((key, value)), _) if !key.is_empty() => {
                set.insert(key.to_owned(), value.to_owned());
            }
            (None, Some(key)) if !key.is_empty() => removed.push(key.to_owned()),
            _ => return Err(Failure::usage(format!("{tag:?} is neither key=value nor key-"))),
        }
    }
    Ok((set, removed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_set_or_removed() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let (set, removed) = parse(&words(&["a=b=c", "学习率=1", "old-"])).unwrap();
        assert_eq!((set["a"].as_str(), set["学习率"].as_str(), removed), ("b=c", "1", vec!["old".to_owned()]));
        for bad in ["=x", "-", "word"] {
            assert!(parse(&words(&[bad])).is_err(), "{bad}");
        }
    }
}
