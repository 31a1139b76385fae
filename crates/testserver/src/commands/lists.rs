//! Lists.

use bytes::Bytes;

use super::Call;
use super::texts::places;
use crate::events::Class;
use crate::reply::{Answer, Refusal, Reply};
use crate::value::List;

pub(super) fn lpush(call: &mut Call<'_>) -> Answer {
    let List(items) = call.state.get_or_create(call.arg(1))?;
    call.args[2..].iter().for_each(|item| items.push_front(item.clone()));
    let length = items.len();
    call.state.notify(Class::LIST, "lpush", call.arg(1));
    Ok(Reply::count(length))
}

pub(super) fn rpush(call: &mut Call<'_>) -> Answer {
    let List(items) = call.state.get_or_create(call.arg(1))?;
    items.extend(call.args[2..].iter().cloned());
    let length = items.len();
    call.state.notify(Class::LIST, "rpush", call.arg(1));
    Ok(Reply::count(length))
}

pub(super) fn lpop(call: &mut Call<'_>) -> Answer {
    pop(call, "lpop", |List(items)| items.pop_front())
}

pub(super) fn rpop(call: &mut Call<'_>) -> Answer {
    pop(call, "rpop", |List(items)| items.pop_back())
}

fn pop(call: &mut Call<'_>, event: &str, take: fn(&mut List) -> Option<Bytes>) -> Answer {
    let single = call.args.len() == 2;
    if call.args.len() > 3 {
        return call.wrong_arity();
    }
    let range = Refusal::of("ERR value is out of range, must be positive");
    let count = if single { 1 } else { call.int(2).map_err(|_| range.clone())? };
    let count = usize::try_from(count).map_err(|_| range)?;
    let key = call.arg(1);
    let Some(list) = call.state.get::<List>(key)? else { return Ok(Reply::Nil) };
    let popped: Vec<Reply> = std::iter::from_fn(|| take(list)).take(count).map(Reply::Bulk).collect();
    if !popped.is_empty() {
        call.state.notify(Class::LIST, event, key);
        call.state.delete_if_empty(key);
    }
    Ok(if single { popped.into_iter().next().unwrap_or(Reply::Nil) } else { Reply::Array(popped) })
}

pub(super) fn llen(call: &mut Call<'_>) -> Answer {
    Ok(Reply::count(call.state.get::<List>(call.arg(1))?.map_or(0, |List(items)| items.len())))
}

pub(super) fn lrange(call: &mut Call<'_>) -> Answer {
    let (from, to) = (call.int(2)?, call.int(3)?);
    let Some(List(items)) = call.state.get(call.arg(1))? else { return Ok(Reply::Array(vec![])) };
    let found = places(from, to, items.len()).map(|places| items.range(places).cloned().map(Reply::Bulk));
    Ok(Reply::Array(found.map(Iterator::collect).unwrap_or_default()))
}
