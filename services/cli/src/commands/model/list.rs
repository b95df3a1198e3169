//! `model list`: models, or the versions of one.

use crate::{
    call,
    context::Context,
    output::{Column, Exit, Row},
    view,
};
use footplate_api::{Client, json, v1};
use footplate_types::ModelName;

/// Entries asked for at a time.
const PAGE: u32 = 200;

const EXAMPLES: &str = "\
Examples:
  footplate model list
  footplate model list digits -o json";

/// List models, or the versions of one
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of a model, to list its versions
    #[arg(value_name = "MODEL", value_parser = ModelName::parse)]
    pub model: Option<ModelName>,
    /// At most so many
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
}

/// Prints the list.
///
/// # Errors
/// No such model, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let most = args.limit as usize;
    match &args.model {
        None => models(&ctx, &client, most).await,
        Some(model) => versions(&ctx, &client, model, most).await,
    }
}

async fn models(ctx: &Context, client: &Client, most: usize) -> anyhow::Result<Exit> {
    let mut asked = v1::ListModelsRequest { project: client.project().to_owned(), page_size: PAGE, ..v1::ListModelsRequest::default() };
    let mut found = Vec::new();
    while found.len() < most {
        let page = call!(client, registry.list_models(asked.clone()))?;
        found.extend(page.models);
        asked.page_token = page.next_page_token;
        if asked.page_token.is_empty() {
            break;
        }
    }
    found.truncate(most);
    let columns = [
        Column::cut("MODEL"),
        Column::whole("VERSIONS"),
        Column::whole("SERVES"),
        Column::whole("STAGING"),
        Column::cut("ALIASES"),
        Column::cut("NOTE").wide(),
    ];
    let number = |version: u32| if version == 0 { "-".to_owned() } else { version.to_string() };
    let row = |model: &v1::Model| {
        let aliases: Vec<String> = model.aliases.iter().map(|alias| format!("{}={}", alias.alias, alias.version)).collect();
        let cells = vec![
            model.name.clone(),
            model.versions.to_string(),
            number(model.serving),
            number(model.staging),
            aliases.join(", "),
            model.note.clone(),
        ];
        Row { id: model.name.clone(), cells, data: json::to_value(model) }
    };
    ctx.output.list(&columns, found.iter().map(row).collect())?;
    Ok(Exit::Done)
}

async fn versions(ctx: &Context, client: &Client, model: &ModelName, most: usize) -> anyhow::Result<Exit> {
    let mut asked = v1::ListVersionsRequest {
        project: client.project().to_owned(),
        model: model.to_string(),
        page_size: PAGE,
        ..v1::ListVersionsRequest::default()
    };
    let mut found = Vec::new();
    while found.len() < most {
        let page = call!(client, registry.list_versions(asked.clone()))?;
        found.extend(page.versions);
        asked.page_token = page.next_page_token;
        if asked.page_token.is_empty() {
            break;
        }
    }
    found.truncate(most);
    let columns = [
        Column::whole("VERSION"),
        Column::whole("STAGE"),
        Column::whole("APPROVAL"),
        Column::cut("ALIASES"),
        Column::cut("FIGURES"),
        Column::whole("RUN"),
        Column::cut("PATH").wide(),
        Column::whole("DIGEST").wide(),
    ];
    let row = |version: &v1::ModelVersion| {
        let figures: Vec<String> = version.figures.iter().map(|(name, figure)| format!("{name}={}", view::number(*figure))).collect();
        let cells = vec![
            version.version.to_string(),
            version.stage.clone(),
            version.approval.clone(),
            version.aliases.join(", "),
            figures.join(" "),
            version.run_id.clone(),
            version.path.clone(),
            version.digest.clone(),
        ];
        Row { id: version.version.to_string(), cells, data: json::to_value(version) }
    };
    ctx.output.list(&columns, found.iter().map(row).collect())?;
    Ok(Exit::Done)
}
