-- import.lua: Import exported timers and dead letters.
--
-- Purpose: An operator restores an export: each entry becomes a waiting timer or a dead letter again, unless its place is
--   taken. A call has at most 1,000 entries, and no name twice.
-- Parts: prelude, timers, markers
-- Flags: (none)
-- KEYS 1 meta, 2 due, 3 timers, 4 timer_states, 5 tombstones, 6 dead, 7 dead_letters, 8 tried
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel, 4 '1' to set marker keys, else '0',
--   then per entry: 'timer', key, record, state ('': none), when it is due, in ms since 1970, as text; or 'letter', the name
--   of a dead letter, its value, '', when it died
-- Returns: secs, micros, a code per entry; why listeners could not be notified, a line break, why marker keys were refused
--   codes: 0 imported, 1 it exists already, 2 the key has another timer, 3 its arming was cancelled, replaced or followed by
--   another lately (1 to 3: nothing was changed)
-- Errors: those of the prelude, ATTACHED (nothing was written)
-- Invariants: A second import changes no timer of the first that waits or runs, and no dead letter that is kept. It does not
--   bring back an arming that was cancelled, replaced or followed within ten minutes. It does bring back a timer that has
--   succeeded or died since the export: these leave no tombstone.

local due, timers, timer_states, tombstones, dead, dead_letters = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local BASE, WIDTH = 4, 5
local count = (#ARGV - BASE) / WIDTH
local importers = {}

function importers.letter(name, dead_letter, _, died)
  if redis.call('HEXISTS', dead_letters, name) == 1 then return 1 end
  redis.call('HSET', dead_letters, name, dead_letter)
  redis.call('ZADD', dead, died, name)
  return 0
end

function importers.timer(key, record, state, at)
  local present = redis.call('HGET', timers, key)
  if present then return sub(present, 2, 9) == sub(record, 2, 9) and 1 or 2 end
  if redis.call('ZSCORE', tombstones, 'a' .. sub(record, 2, 9)) then return 3 end
  if state ~= '' then redis.call('HSET', timer_states, key, state) else redis.call('HDEL', timer_states, key) end
  redis.call('HSET', timers, key, record)
  index_timer(due, tonumber(at), key)
  if state ~= '' and is_tried(state) then add_tried(key, record, at) end
  if ARGV[4] == '1' then set_marker(key, at, state ~= '' and (struct.unpack('>I4', state, 11)) or 1, false) end
  return 0
end

for base = BASE, #ARGV - 1, WIDTH do
  if meta[4] == 'attached' and ARGV[base + 1] == 'timer' then
    return redis.error_reply('ATTACHED ' .. KEYS[1] .. ' belongs to an attached topic: other programs write its keys')
  end
end
local codes = {}
for i = 1, count do
  local base = BASE + WIDTH * (i - 1)
  codes[i] = importers[ARGV[base + 1]](ARGV[base + 2], ARGV[base + 3], ARGV[base + 4], ARGV[base + 5])
end
publish_wake_ups()
return { secs, micros, codes, error_suffix(refused) }
