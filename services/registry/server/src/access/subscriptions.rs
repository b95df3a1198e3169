//! `SubscriptionService`: the broker is brought to it first, and then it is written down; so whatever breaks off in between is mended by asking
//! again, and nobody has credentials that the ledger does not know of.

use super::broker::{BrokerConsumer, BrokerDoor, BrokerDoorError};
use super::{AccessDesk, Answer, Asked, show, written};
use footplate_access::Command;
use footplate_api::server::{bearer, named_project};
use footplate_api::v1::{self, subscription_service_server::SubscriptionService};
use footplate_api::{Refusal, reason};
use footplate_events::facts::{SubscriptionCreated, cut_text};
use footplate_events::{Aggregate, Subject};
use footplate_types::{Invalid, ProjectName, SubscriptionName};
use std::sync::Arc;
use tonic::{Request, Response};

/// What the broker said no to, or did not say.
pub(super) fn not_told(error: BrokerDoorError) -> Refusal {
    match error {
        BrokerDoorError::Away(why) => Refusal::new(&reason::BROKER_AWAY, why).next("ask again: what was not done is done then"),
        BrokerDoorError::NoRoom(why) => Refusal::new(&reason::LIMIT_REACHED, why).next(
            "give each project's copy less (subscriptions.bytes), or the broker more disk; or delete subscriptions that nobody needs",
        ),
        BrokerDoorError::Refused(why) => Refusal::internal(why),
    }
}

fn name_of(text: &str) -> Result<SubscriptionName, Refusal> {
    if text.is_empty() {
        return Err(Refusal::new(&reason::MISSING_FIELD, "no subscription is named").field("name"));
    }
    Ok(SubscriptionName::parse(text).map_err(|invalid| invalid.of("name"))?)
}

/// The subject or wildcard that a subscription's consumer gives.
pub(super) fn filter_of(project: &ProjectName, aggregate: Option<&str>) -> Result<String, Refusal> {
    let Some(word) = aggregate else { return Ok(Subject::filter(Some(project), None)) };
    let kind = Aggregate::ALL.into_iter().find(|kind| kind.as_str() == word);
    let kind = kind.ok_or_else(|| {
        let known = Aggregate::ALL.map(Aggregate::as_str).join(", ");
        Refusal::from(Invalid::new("aggregate", word, known))
    })?;
    Ok(Subject::filter(Some(project), Some(kind)))
}

impl AccessDesk {
    pub(super) fn door(&self) -> Result<&Arc<dyn BrokerDoor>, Refusal> {
        self.door.as_ref().ok_or_else(|| Refusal::new(&reason::NO_OPERATOR, "nobody here holds the keys of the broker's operator"))
    }
}

#[tonic::async_trait]
impl SubscriptionService for AccessDesk {
    async fn create_subscription(&self, request: Request<v1::CreateSubscriptionRequest>) -> Answer<v1::CreateSubscriptionResponse> {
        let (bearer, message) = (bearer(&request)?, request.get_ref());
        let (project, name) = (named_project(&message.project)?, name_of(&message.name)?);
        let aggregate = Some(message.aggregate.clone()).filter(|word| !word.is_empty());
        let filter = filter_of(&project, aggregate.as_deref())?;
        let expires = super::tokens::ends_within(message.expires_in_s, self.shell.clock.now(), bearer)?;
        let door = self.door()?;
        let credentials = door.subscriber(&project, &name, expires);
        let fact = SubscriptionCreated {
            description: cut_text(&message.description),
            aggregate,
            from: (message.from_sequence > 0).then_some(message.from_sequence),
            broker_user: credentials.user.clone(),
            expires,
        };
        let asked = Asked { bearer, subject: Subject::subscription(&project, &name), request_id: "" };
        let command = Command::CreateSubscription { project: project.clone(), name: name.clone(), fact: fact.clone() };
        // Refused before the broker is told; decided upon again when it is written.
        self.decide(&asked, command.clone()).await?;
        // One that was taken back under this name while the broker was away may be good there still: from now on nobody could name it.
        let former = self.shell.live.read().subscription(&project, &name).map(|known| known.fact.broker_user.clone());
        if let Some(former) = former {
            door.unsubscribe(&project, &name, &former).await.map_err(not_told)?;
        }
        let consumer = BrokerConsumer { name: name.clone(), filter, from: fact.from };
        door.subscribe(&project, &consumer).await.map_err(not_told)?;
        let sequence = self.change(asked, command).await?;
        let state = self.shell.live.read();
        let known = state.subscription(&project, &name);
        let subscription = known.map(|known| show::subscription(&project, &name, known, &door.address()));
        Ok(Response::new(v1::CreateSubscriptionResponse { subscription, broker_credentials: credentials.text, sequence }))
    }

    async fn list_subscriptions(&self, request: Request<v1::ListSubscriptionsRequest>) -> Answer<v1::ListSubscriptionsResponse> {
        let message = request.get_ref();
        let project = named_project(&message.project)?;
        self.shell.at_least(message.at_least).await?;
        let address = self.door.as_ref().map(|door| door.address()).unwrap_or_default();
        let state = self.shell.live.read();
        let subscriptions = state.subscriptions(&project).map(|(name, known)| show::subscription(&project, name, known, &address));
        Ok(Response::new(v1::ListSubscriptionsResponse { subscriptions: subscriptions.collect() }))
    }

    async fn delete_subscription(&self, request: Request<v1::DeleteSubscriptionRequest>) -> Answer<v1::WriteResponse> {
        let (bearer, message) = (bearer(&request)?, request.get_ref());
        let (project, name) = (named_project(&message.project)?, name_of(&message.name)?);
        let door = self.door()?;
        let asked = Asked { bearer, subject: Subject::subscription(&project, &name), request_id: &message.request_id };
        let command = Command::DeleteSubscription { project: project.clone(), name: name.clone(), reason: cut_text(&message.reason) };
        // Written first: from then on it is void, and whoever asks again has the broker told again.
        let sequence = self.change(asked, command).await?;
        // Whoever repeats a request that is long done must not take back what was made under this name since.
        let state = |known: &footplate_access::Subscription| known.deleted.is_some().then(|| known.fact.broker_user.clone());
        let user = self.shell.live.read().subscription(&project, &name).and_then(state);
        if let Some(user) = user {
            door.unsubscribe(&project, &name, &user).await.map_err(not_told)?;
        }
        written(sequence)
    }
}
