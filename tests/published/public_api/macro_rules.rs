//! Macros by example, as far as the crates' items are made by them: rules are tried in order, and a
//! repetition takes as many turns as it can.

use std::collections::HashMap;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use syn::{File, Item, ItemMacro};

/// What the variables of a rule stand for.
#[derive(Clone, Debug)]
enum Bound {
    Once(TokenStream),
    Often(Vec<Bindings>),
}
type Bindings = HashMap<String, Bound>;

/// The items, with those in place of the macros that make them.
pub(crate) fn expand(items: Vec<Item>) -> Vec<Item> {
    let known = items.iter().filter_map(defined).collect::<HashMap<_, _>>();
    let one = |item| match &item {
        // Those of other crates make nothing public here.
        Item::Macro(ItemMacro { ident: None, mac, .. }) if mac.path.get_ident().is_none() => vec![],
        Item::Macro(called @ ItemMacro { ident: None, .. }) => {
            let rules = called.mac.path.get_ident().and_then(|name| known.get(&name.to_string()));
            let rules = rules.unwrap_or_else(|| panic!("items of a macro that its file does not define"));
            let made = rules.iter().find_map(|(pattern, body)| {
                let mut input =
                    called.mac.tokens.clone().into_iter().collect::<Vec<_>>().into_iter().peekable();
                let bindings = take(pattern, &mut input)?;
                input.peek().is_none().then(|| write(body, &bindings))
            });
            syn::parse2::<File>(made.expect("no rule fits")).unwrap().items
        }
        _ => vec![item],
    };
    items.into_iter().flat_map(one).collect()
}

type Rules = Vec<(Vec<TokenTree>, Vec<TokenTree>)>;

fn defined(item: &Item) -> Option<(String, Rules)> {
    let Item::Macro(ItemMacro { ident: Some(name), mac, .. }) = item else { return None };
    let groups = mac.tokens.clone().into_iter().filter_map(inside).collect::<Vec<_>>();
    Some((name.to_string(), groups.chunks(2).map(|rule| (rule[0].clone(), rule[1].clone())).collect()))
}

fn inside(token: TokenTree) -> Option<Vec<TokenTree>> {
    match token {
        TokenTree::Group(group) => Some(group.stream().into_iter().collect()),
        _ => None,
    }
}

type Input = std::iter::Peekable<std::vec::IntoIter<TokenTree>>;

fn is(token: Option<&TokenTree>, sign: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == sign)
}

/// Where a repetition that begins at `at` ends, and what separates its turns.
fn repetition(pattern: &[TokenTree], at: usize) -> Option<(&Group, Option<&TokenTree>, usize)> {
    let TokenTree::Group(group) = pattern.get(at + 1).filter(|_| is(pattern.get(at), '$'))? else {
        return None;
    };
    let operator = |at| ['*', '+', '?'].into_iter().any(|sign| is(pattern.get(at), sign));
    if operator(at + 2) { Some((group, None, at + 3)) } else { Some((group, pattern.get(at + 2), at + 4)) }
}

fn take(pattern: &[TokenTree], input: &mut Input) -> Option<Bindings> {
    let (mut bindings, mut at) = (Bindings::new(), 0);
    while at < pattern.len() {
        if let Some((group, separator, end)) = repetition(pattern, at) {
            let turns = take_often(group, separator, input);
            for name in variables(group.stream()) {
                bindings.insert(name, Bound::Often(turns.clone()));
            }
            at = end;
        } else if is(pattern.get(at), '$') {
            let taken = take_fragment(&pattern[at + 3].to_string(), input)?;
            bindings.insert(pattern[at + 1].to_string(), Bound::Once(taken));
            at += 4;
        } else {
            bindings.extend(take_token(&pattern[at], &input.next()?)?);
            at += 1;
        }
    }
    Some(bindings)
}

fn take_often(group: &Group, separator: Option<&TokenTree>, input: &mut Input) -> Vec<Bindings> {
    let pattern: Vec<_> = group.stream().into_iter().collect();
    let mut turns = Vec::new();
    loop {
        let mut ahead = input.clone();
        let between = separator.filter(|_| !turns.is_empty());
        if between.is_some_and(|sign| ahead.next().is_none_or(|token| token.to_string() != sign.to_string()))
        {
            return turns;
        }
        if ahead.peek().is_none() {
            return turns;
        }
        let Some(turn) = take(&pattern, &mut ahead) else { return turns };
        turns.push(turn);
        *input = ahead;
    }
}

fn take_token(expected: &TokenTree, token: &TokenTree) -> Option<Bindings> {
    match (expected, token) {
        (TokenTree::Group(pattern), TokenTree::Group(group)) if pattern.delimiter() == group.delimiter() => {
            let pattern: Vec<_> = pattern.stream().into_iter().collect();
            let mut within = group.stream().into_iter().collect::<Vec<_>>().into_iter().peekable();
            let bindings = take(&pattern, &mut within)?;
            within.peek().is_none().then_some(bindings)
        }
        _ => (expected.to_string() == token.to_string()).then(Bindings::new),
    }
}

/// An identifier or a literal is one token; all else goes up to the next comma.
fn take_fragment(kind: &str, input: &mut Input) -> Option<TokenStream> {
    match kind {
        "ident" => input.next_if(|token| matches!(token, TokenTree::Ident(_))).map(Into::into),
        "literal" => input.next_if(|token| matches!(token, TokenTree::Literal(_))).map(Into::into),
        "tt" => input.next().map(Into::into),
        _ => {
            let taken: Vec<_> = std::iter::from_fn(|| input.next_if(|token| !is(Some(token), ','))).collect();
            (!taken.is_empty()).then(|| taken.into_iter().collect())
        }
    }
}

fn variables(pattern: TokenStream) -> Vec<String> {
    let tokens: Vec<_> = pattern.into_iter().collect();
    let inner =
        tokens.iter().cloned().filter_map(inside).flat_map(|inner| variables(inner.into_iter().collect()));
    let own = tokens.windows(2).filter(|pair| is(pair.first(), '$')).map(|pair| pair[1].to_string());
    own.chain(inner).collect()
}

fn write(body: &[TokenTree], bindings: &Bindings) -> TokenStream {
    let (mut out, mut at) = (Vec::new(), 0);
    while at < body.len() {
        if let Some((group, separator, end)) = repetition(body, at) {
            out.extend(write_often(group, separator, bindings));
            at = end;
        } else if is(body.get(at), '$') {
            match &bindings[&body[at + 1].to_string()] {
                Bound::Once(tokens) => out.extend(tokens.clone()),
                Bound::Often(_) => panic!("${} outside of its repetition", body[at + 1]),
            }
            at += 2;
        } else {
            out.push(match &body[at] {
                TokenTree::Group(group) => {
                    let within: Vec<_> = group.stream().into_iter().collect();
                    Group::new(group.delimiter(), write(&within, bindings)).into()
                }
                token => token.clone(),
            });
            at += 1;
        }
    }
    out.into_iter().collect()
}

fn write_often(group: &Group, separator: Option<&TokenTree>, bindings: &Bindings) -> TokenStream {
    let body: Vec<_> = group.stream().into_iter().collect();
    let turns = variables(group.stream()).into_iter().find_map(|name| match bindings.get(&name) {
        Some(Bound::Often(turns)) => Some(turns),
        _ => None,
    });
    let mut out = Vec::new();
    for (nth, turn) in turns.expect("a repetition of nothing").iter().enumerate() {
        out.extend(separator.filter(|_| nth > 0).cloned());
        let all = bindings.clone().into_iter().chain(turn.clone()).collect();
        // Without a delimiter it would be a group of its own.
        debug_assert_ne!(group.delimiter(), Delimiter::None);
        out.extend(write(&body, &all));
    }
    out.into_iter().collect()
}
