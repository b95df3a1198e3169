//! `TokenService`: a token is told once; from then on the ledger knows its digest alone.

use super::{AccessDesk, Answer, Asked, any_project, principal_of, refused, show, written};
use footplate_access::{Command, Refusal as Refused};
use footplate_api::server::bearer;
use footplate_api::v1::{self, token_service_server::TokenService};
use footplate_api::{Refusal, reason};
use footplate_clock::entropy;
use footplate_events::facts::{TokenCreated, cut_text};
use footplate_events::{Event, Subject};
use footplate_shell::{Named, TRIES, resolve};
use footplate_types::{Bearer, Digest, NodeName, PrincipalId, Role, Timestamp, TokenId};
use tonic::{Request, Response};

/// The longest life of a token that has an end, in seconds: ten years.
const EXPIRES_MAX_S: u64 = 10 * 366 * 86_400;

#[tonic::async_trait]
impl TokenService for AccessDesk {
    async fn create_token(&self, request: Request<v1::CreateTokenRequest>) -> Answer<v1::CreateTokenResponse> {
        let (bearer, message) = (bearer(&request)?, request.get_ref());
        let principal = if message.principal.is_empty() { bearer.principal.clone() } else { principal_of(&message.principal)? };
        if message.expires_in_s > EXPIRES_MAX_S {
            let refusal = Refusal::new(&reason::INVALID_FIELD, format!("a token of {} s", message.expires_in_s)).field("expires_in_s");
            return Err(refusal
                .value(message.expires_in_s.to_string())
                .allowed(format!("at most {EXPIRES_MAX_S}, or 0 for no end"))
                .into());
        }
        let id = match message.request_id.as_str() {
            "" => footplate_clock::token_id(),
            key => TokenId::derived(&[b"token", bearer.principal.as_str().as_bytes(), key.as_bytes()]),
        };
        let secret = format!("fp_{}", Digest::from_bytes(entropy()));
        let expires = ends(message.expires_in_s, self.shell.clock.now())?;
        let fact = TokenCreated {
            principal,
            digest: Digest::of(secret.as_bytes()),
            label: cut_text(&message.label),
            project: Some(message.project.as_str()).filter(|text| !text.is_empty()).map(any_project).transpose()?,
            role: Some(message.role.as_str()).filter(|text| !text.is_empty()).map(Role::parse).transpose().map_err(Refusal::from)?,
            expires,
            parent: None,
            broker_user: None,
        };
        let (made, sequence, is_new) = self.make(bearer, id, fact, &message.request_id).await?;
        Ok(Response::new(v1::CreateTokenResponse {
            id: id.to_string(),
            secret: if is_new { secret } else { String::new() },
            sequence,
            principal: made.principal.to_string(),
            expires_at: made.expires.map(|end| end.to_string()).unwrap_or_default(),
        }))
    }

    async fn create_node_token(&self, request: Request<v1::CreateNodeTokenRequest>) -> Answer<v1::CreateNodeTokenResponse> {
        let (bearer, message) = (bearer(&request)?, request.get_ref());
        if message.node.is_empty() {
            return Err(Refusal::new(&reason::MISSING_FIELD, "no node is named").field("node").into());
        }
        let node = NodeName::parse(&message.node).map_err(Refusal::from)?;
        let expires = ends_within(message.expires_in_s, self.shell.clock.now(), bearer)?;
        let secret = format!("fp_{}", Digest::from_bytes(entropy()));
        let broker = self.door.as_ref().map(|door| (door.node(&node, expires), door.address()));
        let fact = TokenCreated {
            principal: PrincipalId::of_node(&node),
            digest: Digest::of(secret.as_bytes()),
            label: cut_text(&message.label),
            project: None,
            role: None,
            expires,
            parent: None,
            broker_user: broker.as_ref().map(|(credentials, _)| credentials.user.clone()),
        };
        let id = footplate_clock::token_id();
        let (made, sequence, _) = self.make(bearer, id, fact, "").await?;
        let (broker_credentials, broker_address) = broker.map(|(credentials, address)| (credentials.text, address)).unwrap_or_default();
        let expires_at = made.expires.map(|end| end.to_string()).unwrap_or_default();
        Ok(Response::new(v1::CreateNodeTokenResponse {
            id: id.to_string(),
            secret,
            broker_credentials,
            broker_address,
            sequence,
            expires_at,
        }))
    }

    async fn list_tokens(&self, request: Request<v1::ListTokensRequest>) -> Answer<v1::ListTokensResponse> {
        let (bearer, message) = (bearer(&request)?, request.get_ref());
        let wanted = Some(message.principal.as_str()).filter(|text| !text.is_empty()).map(principal_of).transpose()?;
        self.shell.at_least(message.at_least).await?;
        let now = self.shell.clock.now();
        let state = self.shell.live.read();
        let sees = |whose: &PrincipalId| *whose == bearer.principal || state.may_make(bearer, whose);
        let shown = state.tokens().filter(|(_, token)| wanted.as_ref().is_none_or(|whose| *whose == token.fact.principal));
        let shown = shown.filter(|(_, token)| sees(&token.fact.principal) && (message.all || token.is_good(now)));
        Ok(Response::new(v1::ListTokensResponse { tokens: shown.map(|(id, token)| show::token(id, token)).collect() }))
    }

    async fn revoke_token(&self, request: Request<v1::RevokeTokenRequest>) -> Answer<v1::WriteResponse> {
        let (bearer, message) = (bearer(&request)?, request.get_ref());
        self.shell.caught_up().await?;
        let token = self.named(bearer, &message.id)?;
        let asked = Asked { bearer, subject: Subject::token(token), request_id: &message.request_id };
        let sequence = self.change(asked, Command::RevokeToken { token, reason: cut_text(&message.reason) }).await?;
        let user = self.shell.live.read().token(&token).and_then(|known| known.fact.broker_user.clone());
        // The token is void already; whoever asks again has the broker told again.
        if let Some(user) = user {
            self.door()?.revoke_node(&user).await.map_err(super::subscriptions::not_told)?;
        }
        written(sequence)
    }
}

/// [`ends`], never after the token that was shown: what it gives away is not to outlive it.
pub(super) fn ends_within(seconds: u64, now: Timestamp, bearer: &Bearer) -> Result<Option<Timestamp>, Refusal> {
    let wanted = ends(seconds, now)?;
    match (wanted, bearer.expires) {
        (Some(wanted), Some(end)) if wanted > end => Err(refused(Refused::Beyond { limit: format!("the time until {end}") })),
        (None, end) => Ok(end),
        (wanted, _) => Ok(wanted),
    }
}

/// When something ends that is to end in so many seconds; never for 0.
pub(super) fn ends(seconds: u64, now: Timestamp) -> Result<Option<Timestamp>, Refusal> {
    if seconds > EXPIRES_MAX_S {
        let refusal = Refusal::new(&reason::INVALID_FIELD, format!("an end in {seconds} s")).field("expires_in_s");
        return Err(refusal.value(seconds.to_string()).allowed(format!("at most {EXPIRES_MAX_S}, or 0 for no end")));
    }
    Ok((seconds > 0).then(|| now.plus_millis(seconds * 1_000)))
}

impl AccessDesk {
    /// Makes a token, or finds the one that the same request has made before.
    async fn make(&self, bearer: &Bearer, id: TokenId, fact: TokenCreated, request_id: &str) -> Result<(TokenCreated, u64, bool), Refusal> {
        let asked = Asked { bearer, subject: Subject::token(id), request_id };
        let TokenCreated { principal, digest, label, project, role, expires, parent: _, broker_user } = fact.clone();
        let command = Command::CreateToken { principal, digest, label, project, role, expires, broker_user };
        for _ in 0..TRIES {
            let (facts, last) = self.shell.aggregate(&asked.subject).await?;
            if let Some(first) = facts.first() {
                // The limits are not compared: those that were not asked for were taken over, and an end is counted from the moment of the call.
                return match &first.envelope.event {
                    Event::TokenCreated(made) if made.principal == fact.principal && made.label == fact.label => {
                        Ok((made.clone(), first.sequence, false))
                    }
                    _ => {
                        let told = format!("request id {request_id:?} was used for another token");
                        let refusal = Refusal::new(&reason::IDEMPOTENCY_KEY_REUSED, told).field("request_id").value(request_id);
                        Err(refusal.allowed("an id of its own for each request"))
                    }
                };
            }
            let Some(event) = self.decide(&asked, command.clone()).await? else {
                return Err(Refusal::internal("a token that is new is always decided upon"));
            };
            let Event::TokenCreated(made) = event.clone() else {
                return Err(Refusal::internal("a token is made by the event that says so"));
            };
            let envelope = self.shell.envelope(asked.id(), asked.subject.clone(), event, bearer.principal.clone());
            if let Some(sequence) = self.shell.append(envelope, last).await? {
                self.seen(sequence).await;
                return Ok((made, sequence, true));
            }
        }
        Err(Refusal::new(&reason::CHANGED_MEANWHILE, format!("{} was changed by others at the same time", asked.subject)))
    }

    /// The token that a whole id or a unique prefix names, among those that the bearer may see.
    fn named(&self, bearer: &Bearer, text: &str) -> Result<TokenId, Refusal> {
        let state = self.shell.live.read();
        let sees = |whose: &PrincipalId| *whose == bearer.principal || state.may_make(bearer, whose);
        let seen = state.tokens().filter(|(_, token)| sees(&token.fact.principal)).map(|(id, _)| *id);
        resolve(&Named { what: "token", field: "id", unknown: &reason::TOKEN_NOT_FOUND, project: None }, text, seen)
    }
}
