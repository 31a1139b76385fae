-- repartition_step.lua: take a partition through the change of its topic to another number of partitions.
--
-- Purpose: stop its claims, close it, share what its meta says, open it with the new number; and take that back.
-- Parts: (none)
-- Flags: allow-oom
-- KEYS 1 meta, 2 tombstones, 3 claimers, 4 journal
-- ARGV 1 wire version, 2 number of partitions, 3 wake-up channel, 4 'ask' to change nothing, 'pause' and 'resume' to stop
--   claims and to let them go on, 'close', 'share', 'open', or 'clean_up' for what calls have left that are over, 5 how many
--   partitions there will be, 6 index of the partition, 7 the caller's id, under which it pauses (8 bytes), 8 the id under
--   which partition 0 is closed (8 bytes), 9 to share: why another was paused (or ''), 10 its index, 11 how many dead
--   letters it had trimmed
-- Returns: 1 if it stands as is asked now, else 0; 'none', 'open', 'paused', 'closed' or 'destroying'; number of partitions;
--   how many there will be, or 0; kind; under which id it is closed (or ''); why it was paused before (or ''); how many dead
--   letters were trimmed; the most partitions that the topic has had; for how long it has been closed, in ms
-- Errors: WIREVERSION (nothing was written)
-- Invariants: partition 0 is closed by its pauser alone, and keeps the id under which it is; no other is closed that was
--   resumed since it was paused. What is closed is opened under its id alone, or left by a call that is over.

local meta, tombstones, claimers, journal = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local version, of, how, to, index = ARGV[1], ARGV[2], ARGV[4], ARGV[5], tonumber(ARGV[6])
local own, id = ARGV[7], ARGV[8]
local REASON = 'it is getting another number of partitions'
local found = redis.call('HMGET', meta, 'v', 'partitions', 'kind', 'paused', 'target_partitions', 'repartition_id', 'paused_before', 'trimmed', 'max_partitions', 'closed_at')
local stands, count, paused = found[1], found[2], found[4]
local open, closed = stands == version, stands == 'repartitioning'
-- Why it was paused before; nothing, where it is not paused by a call of this, or was resumed since.
local kept = (paused or closed) and found[7]
if stands and not open and not closed and stands ~= 'destroying' then
  return redis.error_reply('WIREVERSION ' .. KEYS[1] .. ' says ' .. found[1] .. ', the caller ' .. ARGV[1])
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

-- Why it was paused by others, while this pauses it, too: also if that was said since.
local function reason()
  if paused == REASON or closed then return kept or '' end
  return paused or ''
end

local function resume(why)
  redis.call('HDEL', meta, 'target_partitions', 'repartition_id', 'paused_before', 'closed_at')
  if why == '' then redis.call('HDEL', meta, 'paused') else redis.call('HSET', meta, 'paused', why) end
  redis.pcall('SPUBLISH', ARGV[3], 'w0')
end

local function close()
  local most = math.max(tonumber(found[9] or '') or 0, tonumber(of), tonumber(to))
  redis.call('HSET', meta, 'paused_before', reason(), 'v', 'repartitioning', 'partitions', of, 'target_partitions', to, 'repartition_id', id, 'max_partitions', most)
  redis.call('HSETNX', meta, 'closed_at', now)
end

-- What those had trimmed that go, and have said so, is counted once.
local function add_trimmed()
  local fields, sum = {}, tonumber(found[8] or '') or 0
  for other = index + tonumber(to), tonumber(of) - 1, tonumber(to) do
    local field = 'trimmed_' .. string.format('%.0f', other)
    local count = redis.call('HGET', meta, field)
    if count then
      fields[#fields + 1] = field
      sum = sum + tonumber(count)
    end
  end
  if #fields > 0 then
    redis.call('HSET', meta, 'trimmed', sum)
    redis.call('HDEL', meta, unpack(fields))
  end
end

local function open_to(number)
  add_trimmed()
  local why = reason()
  -- Those who claimed cannot say the new number, and lead nobody any more.
  redis.call('UNLINK', claimers)
  -- One that is not needed any more stays, and says to late callers how many there are.
  if index >= tonumber(number) then
    redis.call('UNLINK', tombstones)
    -- Callers of an earlier release do not name it.
    if journal then redis.call('UNLINK', journal) end
    redis.call('HDEL', meta, 'trimmed', 'journal', 'watched_until')
    why = ''
  end
  redis.call('HSET', meta, 'v', version, 'partitions', number)
  resume(why)
end

local mine = open and count == of and kept and found[6] == own
local steps, done = {}, false

function steps.pause()
  if open and count == of and not (index == 0 and kept and found[5] ~= to) then
    redis.call('HSET', meta, 'paused_before', reason(), 'paused', REASON, 'target_partitions', to, 'repartition_id', own)
    return true
  end
  return not stands
end

function steps.resume()
  if mine then resume(reason()) end
  return mine
end

function steps.close()
  if closed then return found[index == 0 and 5 or 6] == (index == 0 and to or id) end
  if mine or index > 0 and not stands then
    close()
    return true
  end
end

function steps.share()
  if not closed or found[6] ~= id then return false end
  if ARGV[9] ~= '' and (kept or '') == '' then redis.call('HSET', meta, 'paused_before', ARGV[9]) end
  if ARGV[11] ~= '0' then redis.call('HSET', meta, 'trimmed_' .. ARGV[10], ARGV[11]) end
  return true
end

function steps.open()
  if closed and found[6] == id then
    open_to(to)
    return true
  end
  if not open or count ~= to then return false end
  -- A call that is over may have paused it since.
  if kept then resume(reason()) end
  return true
end

function steps.clean_up()
  if open and kept then resume(reason()) end
  if closed and found[6] == id then open_to(of) end
  return true
end

if steps[how] then done = steps[how]() end
local after = redis.call('HMGET', meta, 'v', 'partitions', 'target_partitions', 'kind', 'repartition_id', 'paused_before', 'trimmed', 'max_partitions', 'paused')
local state = 'none'
if after[1] == version then
  state = after[6] and after[9] and 'paused' or 'open'
elseif after[1] then
  state = after[1] == 'destroying' and after[1] or 'closed'
end
local since = tonumber(found[10] or '') or now
return { done and 1 or 0, state, after[2] or '0', after[3] or '0', after[4] or 'managed', after[1] ~= version and after[5] or '',
  after[6] or '', after[7] or '0', after[8] or '0', now - since }
