//! Sets.

use super::Call;
use crate::events::Class;
use crate::reply::{Answer, Reply};
use crate::value::Members;

pub(super) fn sadd(call: &mut Call<'_>) -> Answer {
    let key = call.arg(1);
    let members = call.state.get_or_create::<Members>(key)?;
    let new = call.args[2..].iter().filter(|member| members.add(member)).count();
    if new > 0 {
        call.state.notify(Class::SET, "sadd", key);
    }
    Ok(Reply::count(new))
}

pub(super) fn srem(call: &mut Call<'_>) -> Answer {
    let key = call.arg(1);
    let Some(members) = call.state.get::<Members>(key)? else { return Ok(Reply::Int(0)) };
    let gone = call.args[2..].iter().filter(|member| members.remove(member)).count();
    if gone > 0 {
        call.state.notify(Class::SET, "srem", key);
        call.state.delete_if_empty(key);
    }
    Ok(Reply::count(gone))
}

pub(super) fn scard(call: &mut Call<'_>) -> Answer {
    Ok(Reply::count(call.state.get::<Members>(call.arg(1))?.map_or(0, |members| members.len())))
}

pub(super) fn smembers(call: &mut Call<'_>) -> Answer {
    let members = call.state.get::<Members>(call.arg(1))?;
    let all = members.as_ref().map(|members| members.iter().cloned().map(Reply::Bulk).collect());
    Ok(Reply::Set(all.unwrap_or_default()))
}

pub(super) fn sismember(call: &mut Call<'_>) -> Answer {
    let (key, member) = (call.arg(1), call.arg(2));
    let members = call.state.get::<Members>(key)?;
    Ok(Reply::flag(members.is_some_and(|members| members.contains(member))))
}
