//! What is asked of a model, and what the registry answers.

use crate::model::{Answer, Model, Version, listed};
use crate::{Refusal, Source};
use footplate_es::Decide;
use footplate_events::Event;
use footplate_events::facts::*;
use footplate_types::{AliasName, Digest, Invalid, MetricName, PrincipalId, VersionNumber};
use std::collections::BTreeMap;

/// The most aliases of a model.
pub const ALIASES_MAX: usize = 1_000;
/// The most figures of one evaluation.
pub const FIGURES_MAX: usize = 1_000;
/// The most characters of the name of evaluation data.
const DATA_NAME_MAX: usize = 250;
/// The most figures of a version, by name: its newest ones are shown together.
pub const FIGURES_SHOWN_MAX: usize = 2_000;

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Have the model.
    Create {
        /// What it is about.
        note: String,
    },
    /// Make a version of an artifact.
    Register {
        /// The artifact.
        source: Source,
        /// What it is about.
        note: String,
    },
    /// Keep figures of a version.
    Evaluate {
        /// The version.
        version: VersionNumber,
        /// Name to figure.
        figures: BTreeMap<MetricName, f64>,
        /// On what.
        data: Option<EvaluationData>,
        /// Anything else.
        note: String,
    },
    /// Propose that a version may serve.
    Propose {
        /// The version.
        version: VersionNumber,
        /// Why.
        reason: String,
    },
    /// Say yes to the open proposal.
    Approve {
        /// The version.
        version: VersionNumber,
        /// Why.
        reason: String,
    },
    /// Say no to the open proposal, or withdraw one's own.
    Reject {
        /// The version.
        version: VersionNumber,
        /// Why.
        reason: String,
    },
    /// Have an approved version serve.
    Promote {
        /// The version.
        version: VersionNumber,
        /// Why.
        reason: String,
    },
    /// Have serve again what served before, or a version that did once.
    RollBack {
        /// The version; without one, what served before.
        to: Option<VersionNumber>,
        /// Why.
        reason: String,
    },
    /// Move a version to a stage. To Production it is a promotion, to Archived an archival.
    Move {
        /// The version.
        version: VersionNumber,
        /// The stage.
        to: Stage,
        /// Why.
        reason: String,
    },
    /// Retire a version.
    Archive {
        /// The version.
        version: VersionNumber,
        /// Whether the aliases that name it go with it; else it is refused while there are any.
        free_aliases: bool,
        /// Why.
        reason: String,
    },
    /// Have an alias name a version.
    SetAlias {
        /// The alias.
        alias: AliasName,
        /// The version.
        version: VersionNumber,
        /// Why.
        reason: String,
    },
    /// Have an alias name nothing.
    RemoveAlias {
        /// The alias.
        alias: AliasName,
        /// Why.
        reason: String,
    },
}

/// What was looked up beforehand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Who asks.
    pub by: PrincipalId,
    /// Whether they are the project's only member.
    pub is_only_member: bool,
    /// Digest of the request's body, under an idempotency key.
    pub body: Option<Digest>,
    /// The ledger sequence that the asker had seen: what serves, or an alias, is moved only when nobody has moved it since, and a proposal
    /// is answered only when it stood there already. Absent: the asker does not mind.
    pub seen: Option<u64>,
}

impl Facts {
    /// Whether the asker had this in sight, or does not mind.
    fn has_seen(&self, mark: &crate::Mark) -> bool {
        self.seen.is_none_or(|seen| mark.sequence <= seen)
    }
}

impl Decide for Model {
    type Command = Command;
    type Facts = Facts;
    type Refusal = Refusal;

    /// At most one event; none when it is already so.
    fn decide(&self, command: Command, facts: &Facts) -> Result<Vec<Event>, Refusal> {
        let decided = match command {
            Command::Create { note } => self.create(note, facts),
            Command::Register { source, note } => self.register(source, note, facts),
            Command::Evaluate { version, figures, data, note } => self.evaluate(version, figures, data, note, facts),
            Command::Propose { version, reason } => self.propose(version, reason, facts),
            Command::Approve { version, reason } => self.approve(version, reason, facts),
            Command::Reject { version, reason } => self.reject(version, reason, facts),
            Command::Promote { version, reason } => self.promote(version, reason, facts),
            Command::RollBack { to, reason } => self.roll_back(to, reason, facts),
            Command::Move { version, to: Stage::Production, reason } => self.promote(version, reason, facts),
            Command::Move { version, to: Stage::Archived, reason } => self.archive(version, false, reason, facts),
            Command::Move { version, to: to @ (Stage::None | Stage::Staging), reason } => self.stage(version, to, reason, facts),
            Command::Archive { version, free_aliases, reason } => self.archive(version, free_aliases, reason, facts),
            Command::SetAlias { alias, version, reason } => self.set_alias(alias, version, reason, facts),
            Command::RemoveAlias { alias, reason } => self.remove_alias(alias, reason, facts),
        }?;
        Ok(decided.into_iter().collect())
    }
}

type Decided = Result<Option<Event>, Refusal>;

fn check_text(field: &str, text: &str) -> Result<(), Invalid> {
    let count = text.chars().count();
    if count > TEXT_MAX {
        return Err(Invalid::new(field, format!("{count} characters"), format!("at most {TEXT_MAX} characters")));
    }
    Ok(())
}

impl Model {
    fn create(&self, note: String, facts: &Facts) -> Decided {
        check_text("note", &note)?;
        if self.created.is_some() {
            return Err(Refusal::ModelExists { model: self.name.clone() });
        }
        Ok(Some(ModelCreated { model: self.name.clone(), note, body: facts.body }.into()))
    }

    fn register(&self, source: Source, note: String, facts: &Facts) -> Decided {
        check_text("note", &note)?;
        self.exists()?;
        let version = self.versions.keys().next_back().copied().unwrap_or_default().next();
        let Source { run, attempt, path, digest, bytes, files, outcome, complete } = source;
        let (model, body) = (self.name.clone(), facts.body);
        Ok(Some(ModelVersionRegistered { model, version, run, attempt, path, digest, bytes, files, outcome, complete, note, body }.into()))
    }

    fn evaluate(
        &self,
        version: VersionNumber,
        figures: BTreeMap<MetricName, f64>,
        data: Option<EvaluationData>,
        note: String,
        facts: &Facts,
    ) -> Decided {
        check_text("note", &note)?;
        if !(1..=FIGURES_MAX).contains(&figures.len()) {
            let count = format!("{} figures", figures.len());
            return Err(Invalid::new("figures", count, format!("1 to {FIGURES_MAX} figures")).into());
        }
        if let Some((name, figure)) = figures.iter().find(|(_, figure)| !figure.is_finite()) {
            return Err(Invalid::new(format!("figures.{name}"), figure, "a finite number").into());
        }
        if let Some(data) = &data {
            let count = data.name.chars().count();
            if !(1..=DATA_NAME_MAX).contains(&count) {
                let allowed = format!("1 to {DATA_NAME_MAX} characters");
                return Err(Invalid::new("data.name", format!("{count} characters"), allowed).into());
            }
        }
        let known = &self.version(version)?.figures;
        let more = figures.keys().filter(|name| !known.contains_key(*name)).count();
        if more > 0 && known.len() + more > FIGURES_SHOWN_MAX {
            let count = format!("{} names, with those of earlier evaluations", known.len() + more);
            return Err(Invalid::new("figures", count, format!("at most {FIGURES_SHOWN_MAX} names of figures a version")).into());
        }
        Ok(Some(ModelVersionEvaluated { model: self.name.clone(), version, figures, data, note, body: facts.body }.into()))
    }

    fn propose(&self, number: VersionNumber, reason: String, facts: &Facts) -> Decided {
        check_text("reason", &reason)?;
        let version = self.usable(number)?;
        let model = self.name.clone();
        if let Some(approval) = &version.approval {
            return Err(Refusal::AlreadyApproved { model, version: number, by: approval.mark.by.clone() });
        }
        match version.proposal.as_ref().filter(|proposal| proposal.answer.is_none()) {
            Some(open) if open.mark.by == facts.by => Ok(None),
            Some(open) => Err(Refusal::ProposalOpen { model, version: number, by: open.mark.by.clone() }),
            None => Ok(Some(ModelVersionProposed { model, version: number, reason, body: facts.body }.into())),
        }
    }

    fn approve(&self, number: VersionNumber, reason: String, facts: &Facts) -> Decided {
        check_text("reason", &reason)?;
        let version = self.usable(number)?;
        let model = self.name.clone();
        if let Some(approval) = &version.approval {
            return Err(Refusal::AlreadyApproved { model, version: number, by: approval.mark.by.clone() });
        }
        let proposed = self.open_proposal(version, facts)?;
        let own = proposed.by == facts.by;
        if own && !facts.is_only_member {
            return Err(Refusal::OwnProposal { model, version: number, by: proposed.by.clone() });
        }
        let proposal = proposed.event;
        Ok(Some(ModelVersionApproved { model, version: number, proposal, as_only_member: own, reason, body: facts.body }.into()))
    }

    fn reject(&self, number: VersionNumber, reason: String, facts: &Facts) -> Decided {
        check_text("reason", &reason)?;
        let version = self.version(number)?;
        let proposal = self.open_proposal(version, facts)?.event;
        Ok(Some(ModelVersionRejected { model: self.name.clone(), version: number, proposal, reason, body: facts.body }.into()))
    }

    fn promote(&self, number: VersionNumber, reason: String, facts: &Facts) -> Decided {
        check_text("reason", &reason)?;
        let version = self.usable(number)?;
        let model = self.name.clone();
        let Some(approval) = &version.approval else { return Err(Refusal::NotApproved { model, version: number }) };
        if self.serving == Some(number) {
            return Ok(None);
        }
        self.still_serves(facts)?;
        let approval = approval.mark.event;
        Ok(Some(ModelPromoted { model, to: version.to_ref(), from: self.serving, approval, reason, body: facts.body }.into()))
    }

    fn roll_back(&self, to: Option<VersionNumber>, reason: String, facts: &Facts) -> Decided {
        check_text("reason", &reason)?;
        self.exists()?;
        let model = self.name.clone();
        let number = match to {
            Some(number) if self.serving == Some(number) => return Ok(None),
            Some(number) => number,
            None => {
                // Whoever names no version means what served when they looked.
                self.still_serves(facts)?;
                let before = self.served_before();
                before.ok_or_else(|| Refusal::NothingBefore { model: model.clone(), serving: self.serving })?
            }
        };
        let version = self.usable(number)?;
        if !version.has_served {
            return Err(Refusal::NeverServed { model, version: number });
        }
        self.still_serves(facts)?;
        Ok(Some(ModelRolledBack { model, to: version.to_ref(), from: self.serving, reason, body: facts.body }.into()))
    }

    fn stage(&self, number: VersionNumber, to: Stage, reason: String, facts: &Facts) -> Decided {
        check_text("reason", &reason)?;
        let version = self.version(number)?;
        if version.stage == to {
            return Ok(None);
        }
        if version.stage == Stage::Production {
            self.still_serves(facts)?;
        }
        let displaced = self.staging.filter(|_| to == Stage::Staging);
        let (model, from, body) = (self.name.clone(), version.stage, facts.body);
        Ok(Some(ModelStaged { model, version: number, from, to, displaced, reason, body }.into()))
    }

    fn archive(&self, number: VersionNumber, free_aliases: bool, reason: String, facts: &Facts) -> Decided {
        check_text("reason", &reason)?;
        let version = self.version(number)?;
        let model = self.name.clone();
        match version.stage {
            Stage::Archived => return Ok(None),
            Stage::Production => return Err(Refusal::Serves { model, version: number }),
            Stage::None | Stage::Staging => {}
        }
        let freed: Vec<AliasName> = self.aliases_of(number).cloned().collect();
        if !freed.is_empty() && !free_aliases {
            return Err(Refusal::HasAliases { model, version: number, aliases: listed(freed.iter()) });
        }
        freed.iter().try_for_each(|alias| self.still_names(alias, facts))?;
        Ok(Some(ModelArchived { model, version: number, from: version.stage, freed, reason, body: facts.body }.into()))
    }

    fn set_alias(&self, alias: AliasName, number: VersionNumber, reason: String, facts: &Facts) -> Decided {
        check_text("reason", &reason)?;
        let version = self.usable(number)?;
        let model = self.name.clone();
        let known = self.aliases.get(&alias);
        match known {
            Some(known) if known.version == number => return Ok(None),
            Some(_) => self.still_names(&alias, facts)?,
            None if self.aliases.len() >= ALIASES_MAX => return Err(Refusal::TooManyAliases { model, most: ALIASES_MAX }),
            None => {}
        }
        let from = known.map(|known| known.version);
        Ok(Some(ModelAliasSet { model, alias, to: version.to_ref(), from, reason, body: facts.body }.into()))
    }

    fn remove_alias(&self, alias: AliasName, reason: String, facts: &Facts) -> Decided {
        check_text("reason", &reason)?;
        let version = self.pick(&crate::Pick::Alias(alias.clone()))?.number;
        self.still_names(&alias, facts)?;
        Ok(Some(ModelAliasRemoved { model: self.name.clone(), alias, version, reason, body: facts.body }.into()))
    }

    /// A version that is not retired.
    fn usable(&self, number: VersionNumber) -> Result<&Version, Refusal> {
        let version = self.version(number)?;
        if version.stage == Stage::Archived {
            return Err(Refusal::Archived { model: self.name.clone(), version: number });
        }
        Ok(version)
    }

    /// The proposal that waits for an answer: nobody answers one that came after they looked.
    fn open_proposal<'a>(&self, version: &'a Version, facts: &Facts) -> Result<&'a crate::Mark, Refusal> {
        let answered = match version.proposal.as_ref().map(|proposal| (&proposal.mark, &proposal.answer)) {
            Some((mark, None)) if facts.has_seen(mark) => return Ok(mark),
            Some((mark, None)) => {
                let what = format!("the proposal of version {} of model {}", version.number, self.name);
                return Err(overtaken(what, format!("one by {}", mark.by), mark));
            }
            Some((_, Some(Answer::Approved(mark)))) => format!("{} approved it", mark.by),
            Some((_, Some(Answer::Rejected(mark)))) => format!("{} rejected it", mark.by),
            None => String::new(),
        };
        Err(Refusal::NotProposed { model: self.name.clone(), version: version.number, answered })
    }

    /// Nobody has changed what serves since the asker looked.
    fn still_serves(&self, facts: &Facts) -> Result<(), Refusal> {
        let Some(changed) = self.serving_changed.as_ref().filter(|changed| !facts.has_seen(changed)) else { return Ok(()) };
        let now = self.serving.map_or_else(|| "nothing".to_owned(), |version| format!("version {version}"));
        Err(overtaken(format!("what serves of model {}", self.name), now, changed))
    }

    /// Nobody has moved the alias since the asker looked.
    fn still_names(&self, alias: &AliasName, facts: &Facts) -> Result<(), Refusal> {
        let Some(known) = self.aliases.get(alias).filter(|known| !facts.has_seen(&known.mark)) else { return Ok(()) };
        Err(overtaken(format!("alias {alias} of model {}", self.name), format!("version {}", known.version), &known.mark))
    }
}

fn overtaken(what: String, now: String, mark: &crate::Mark) -> Refusal {
    Refusal::Overtaken { what, now, by: mark.by.clone(), sequence: mark.sequence }
}
