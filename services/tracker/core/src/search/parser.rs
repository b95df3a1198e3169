//! Reads a filter: `or` binds least, then `and`, then `not`.

use super::literal::Literal;
use super::scan::Scanner;
use super::{Comparison, DEPTH_MAX, Field, Figure, Filter, Own, QueryError};
use crate::run::Status;
use footplate_types::Timestamp;

const OPERATORS: &str = "=, !=, <, <=, >, >=, in (...), not in (...), like, ilike, not like, not ilike, is null, is not null";

/// Reads a filter; an empty one is every run.
pub fn parse_filter(text: &str) -> Result<Filter, QueryError> {
    let mut parser = Parser { scan: Scanner::new(text)?, depth: 0 };
    if parser.scan.is_end() {
        return Ok(Filter::All);
    }
    let filter = parser.any_of()?;
    if parser.scan.is_end() { Ok(filter) } else { Err(parser.scan.error("and, or, or the end")) }
}

/// Reads one field from its text, such as `` metrics.`val/acc` ``.
pub(super) fn parse_field(scan: &mut Scanner) -> Result<Field, QueryError> {
    scan.skip_blanks();
    let start = scan.position();
    let head = scan.word(false, "a field")?;
    if !head.quoted {
        let figure = [("min", Figure::Min), ("max", Figure::Max), ("count", Figure::Count), ("last", Figure::Last)];
        if let Some((_, figure)) = figure.into_iter().find(|(word, _)| *word == head.text)
            && scan.take("(")
        {
            let inner_at = scan.position();
            let Field::Metric(_, name) = parse_field(scan)? else { return Err(scan.error_at(inner_at, "metrics.<name>")) };
            return if scan.take(")") { Ok(Field::Metric(figure, name)) } else { Err(scan.error(")")) };
        }
        match head.text.as_str() {
            "params" | "param" | "parameters" => return path(scan, "params").map(Field::Param),
            "tags" | "tag" | "labels" => return path(scan, "tags").map(|path| Field::Tag(path.join("."))),
            "metrics" | "metric" => return path(scan, "metrics").map(|path| Field::Metric(Figure::Last, path.join("."))),
            "parent" => {
                return if scan.take_adjacent('.') {
                    parse_field(scan).map(|field| Field::Parent(Box::new(field)))
                } else {
                    Err(scan.error("parent.<field>"))
                };
            }
            word => {
                if let Some(own) = Own::parse(word) {
                    return Ok(Field::Own(own));
                }
            }
        }
    }
    let mut allowed = format!("params.<key>, tags.<key>, metrics.<name>, parent.<field>, {}", Own::NAMES.join(", "));
    if let Some(near) = super::nearest::nearest(&head.text, Own::NAMES.iter().copied()).first() {
        allowed = format!("did you mean {near}? {allowed}");
    }
    Err(scan.error_at(start, allowed))
}

fn path(scan: &mut Scanner, of: &str) -> Result<Vec<String>, QueryError> {
    let mut path = Vec::new();
    while scan.take_adjacent('.') {
        path.push(scan.word(false, "a name; quote it when it is more than letters, digits, _, -, / and :")?.text);
    }
    if path.is_empty() { Err(scan.error(format!("{of}.<name>"))) } else { Ok(path) }
}

struct Parser {
    scan: Scanner,
    depth: u32,
}

impl Parser {
    fn any_of(&mut self) -> Result<Filter, QueryError> {
        let mut parts = vec![self.all_of()?];
        while self.scan.take_keyword("or") {
            parts.push(self.all_of()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Filter::Or(parts) })
    }

    fn all_of(&mut self) -> Result<Filter, QueryError> {
        let mut parts = vec![self.one()?];
        while self.scan.take_keyword("and") {
            parts.push(self.one()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Filter::And(parts) })
    }

    fn one(&mut self) -> Result<Filter, QueryError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.scan.error(format!("at most {DEPTH_MAX} nested parentheses and nots")));
        }
        let filter = self.one_within()?;
        self.depth -= 1;
        Ok(filter)
    }

    fn one_within(&mut self) -> Result<Filter, QueryError> {
        if self.scan.take_keyword("not") {
            return Ok(Filter::Not(Box::new(self.one()?)));
        }
        if self.scan.take("(") {
            let inner = self.any_of()?;
            return if self.scan.take(")") { Ok(inner) } else { Err(self.scan.error("and, or, or )")) };
        }
        let field = parse_field(&mut self.scan)?;
        self.condition(field)
    }

    fn condition(&mut self, field: Field) -> Result<Filter, QueryError> {
        if self.scan.take_keyword("is") {
            let negated = self.scan.take_keyword("not");
            if !self.scan.take_keyword("null") {
                return Err(self.scan.error(if negated { "null" } else { "null, not null" }));
            }
            let filter = Filter::IsNull(field);
            return Ok(if negated { Filter::Not(Box::new(filter)) } else { filter });
        }
        let negated = self.scan.take_keyword("not");
        if let Some(filter) = self.set_or_pattern(&field)? {
            return Ok(if negated { Filter::Not(Box::new(filter)) } else { filter });
        }
        if negated {
            return Err(self.scan.error("in, like, ilike"));
        }
        let operators = [
            ("!=", Comparison::Ne),
            ("<>", Comparison::Ne),
            ("<=", Comparison::Le),
            (">=", Comparison::Ge),
            ("==", Comparison::Eq),
            ("=", Comparison::Eq),
            ("<", Comparison::Lt),
            (">", Comparison::Gt),
        ];
        let operator_at = self.scan.position();
        let Some((_, comparison)) = operators.into_iter().find(|(text, _)| self.scan.take(text)) else {
            return Err(self.scan.error(OPERATORS));
        };
        if matches!(comparison, Comparison::Lt | Comparison::Le | Comparison::Gt | Comparison::Ge) && !has_order(&field) {
            return Err(self.scan.error_at(operator_at, "=, !=, in, not in for this field"));
        }
        let literal = self.value(&field)?;
        Ok(Filter::Compare(field, comparison, literal))
    }

    fn set_or_pattern(&mut self, field: &Field) -> Result<Option<Filter>, QueryError> {
        if self.scan.take_keyword("in") {
            if !self.scan.take("(") {
                return Err(self.scan.error("( and values"));
            }
            let mut values = vec![self.value(field)?];
            while self.scan.take(",") {
                values.push(self.value(field)?);
            }
            return if self.scan.take(")") { Ok(Some(Filter::In(field.clone(), values))) } else { Err(self.scan.error(", or )")) };
        }
        for (word, any_case) in [("like", false), ("ilike", true)] {
            if self.scan.take_keyword(word) {
                let pattern = self.scan.word(true, "a pattern in quotes")?.text;
                return Ok(Some(Filter::Like { field: field.clone(), pattern, any_case }));
            }
        }
        Ok(None)
    }

    /// A value, checked against what the field can hold, so that a typo is told and not taken for "no such run".
    fn value(&mut self, field: &Field) -> Result<Literal, QueryError> {
        self.scan.skip_blanks();
        let start = self.scan.position();
        let literal = Literal::of(self.scan.word(true, "a value; quote texts with blanks")?);
        let literal = self.joined_now(literal);
        match allowed_values(field) {
            Some(allowed) if !fits(field, &literal) => Err(self.scan.error_at(start, allowed)),
            _ => Ok(literal),
        }
    }

    /// `now - 1m`, written with blanks.
    fn joined_now(&mut self, literal: Literal) -> Literal {
        if literal != Literal::Word("now".to_owned()) {
            return literal;
        }
        let back = self.scan.position();
        for sign in ["-", "+"] {
            if self.scan.take(sign) {
                if let Ok(span) = self.scan.word(false, "a duration") {
                    return Literal::Word(format!("now{sign}{}", span.text));
                }
                self.scan.go_to(back);
            }
        }
        literal
    }
}

fn innermost(field: &Field) -> &Field {
    match field {
        Field::Parent(inner) => innermost(inner),
        field => field,
    }
}

fn has_order(field: &Field) -> bool {
    !matches!(innermost(field), Field::Own(Own::State | Own::Outcome | Own::Cause | Own::Dirty | Own::Complete | Own::HasJob))
}

/// The words of outcomes; a state may be compared with them, too.
pub(super) const OUTCOMES: [&str; 3] = ["succeeded", "failed", "cancelled"];
const CAUSES: [&str; 14] = [
    "success",
    "user_code",
    "retryable",
    "out_of_memory",
    "cancelled",
    "preempted",
    "drained",
    "lost",
    "infrastructure",
    "timed_out",
    "pending_too_long",
    "void",
    "dependency",
    "deadline_missed",
];

/// What a field can be compared with, where that is a closed list or one type.
fn allowed_values(field: &Field) -> Option<String> {
    let states: Vec<&str> = Status::ALL.iter().map(|status| status.as_str()).collect();
    match innermost(field) {
        Field::Own(Own::State) => Some(format!("{}, {}", states.join(", "), OUTCOMES.join(", "))),
        Field::Own(Own::Outcome) => Some(OUTCOMES.join(", ")),
        Field::Own(Own::Cause) => Some(CAUSES.join(", ")),
        Field::Own(Own::Created | Own::Started | Own::Ended | Own::Sealed) => {
            Some("a time with a zone, such as 2026-11-01T00:00:00Z, or now, now-90s, now-7d".to_owned())
        }
        Field::Own(Own::Duration | Own::Silent) => Some("a duration with units, such as 90s or 1h30m".to_owned()),
        Field::Own(Own::Dirty | Own::Complete | Own::HasJob) => Some("true, false".to_owned()),
        Field::Own(Own::Attempts | Own::Artifacts | Own::Priority | Own::Late) => Some("a whole number".to_owned()),
        Field::Metric(..) => Some("a number".to_owned()),
        Field::Own(_) | Field::Param(_) | Field::Tag(_) | Field::Parent(_) => None,
    }
}

fn fits(field: &Field, literal: &Literal) -> bool {
    let text = literal.text();
    match innermost(field) {
        Field::Own(Own::State) => Status::ALL.iter().any(|status| status.as_str() == text) || OUTCOMES.contains(&text),
        Field::Own(Own::Outcome) => OUTCOMES.contains(&text),
        Field::Own(Own::Cause) => CAUSES.contains(&text),
        Field::Own(Own::Created | Own::Started | Own::Ended | Own::Sealed) => literal.as_time(Timestamp::default()).is_some(),
        Field::Own(Own::Duration | Own::Silent) => literal.as_span().is_some(),
        Field::Own(Own::Dirty | Own::Complete | Own::HasJob) => matches!(text, "true" | "false"),
        Field::Own(Own::Attempts | Own::Artifacts | Own::Priority | Own::Late) | Field::Metric(..) => literal.as_number().is_some(),
        Field::Own(_) | Field::Param(_) | Field::Tag(_) | Field::Parent(_) => true,
    }
}
