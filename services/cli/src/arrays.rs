//! The jobs of an array, as the scheduler lists them.

use crate::call;
use footplate_api::{Client, v1};

/// The most jobs of one page.
const PAGE: u32 = 500;
/// Every state of a job, as the scheduler names them.
pub const STATES: [&str; 6] = ["pending", "held", "placed", "launched", "stopping", "ended"];

/// All jobs of an array, by their index; `named` is its id or that of any job of it, or the beginning of one.
///
/// # Errors
/// No such run, one of no array, or no answer.
pub async fn jobs_of(client: &Client, named: &str) -> anyhow::Result<Vec<v1::Job>> {
    let asked = v1::ListJobsRequest {
        project: client.project().to_owned(),
        array: crate::context::bare_id(named)?,
        states: STATES.map(str::to_owned).to_vec(),
        ..v1::ListJobsRequest::default()
    };
    let mut jobs = listed(client, asked, usize::MAX).await?;
    // One that was run again stands twice: the older first.
    jobs.sort_by(|one, other| index(one).cmp(&index(other)).then_with(|| one.submitted_at.cmp(&other.submitted_at)));
    Ok(jobs)
}

/// The jobs of a list, page after page until there are `most`.
///
/// # Errors
/// A refusal, or no answer.
pub async fn listed(client: &Client, asked: v1::ListJobsRequest, most: usize) -> anyhow::Result<Vec<v1::Job>> {
    let mut asked = v1::ListJobsRequest { page_size: PAGE, ..asked };
    let mut jobs = Vec::new();
    loop {
        let page = call!(client, jobs.list_jobs(asked.clone()))?;
        jobs.extend(page.jobs);
        asked.page_token = page.next_page_token;
        if asked.page_token.is_empty() || jobs.len() >= most {
            return Ok(jobs);
        }
    }
}

fn index(job: &v1::Job) -> u32 {
    job.array.as_ref().map_or(0, |array| array.index)
}
