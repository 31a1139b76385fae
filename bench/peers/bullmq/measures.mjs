// The protocol of bench/README.md, without the system: a peer has `connect`, `offer`, `offerAndWithdraw`,
// `offerBulk`, `bulk`, `work`, `describe`, and `atMost`, the most jobs of measures that time all jobs.

import { setTimeout as sleep } from 'node:timers/promises';

const TASKS = 32;
const KILLED = 10;
const MAX_QUIET_MS = 15_000;
const KILL_MAX_WAIT_MS = 150_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

const settings = {
  url: process.env.BENCH_URL ?? 'redis://127.0.0.1:6379',
  count: Number(process.env.BENCH_COUNT ?? 1_000),
  concurrency: Number(process.env.BENCH_CONCURRENCY ?? 100),
  rate: Number(process.env.BENCH_RATE ?? 1_000),
  shuffled: process.env.BENCH_ORDER === 'shuffled',
  payload: JSON.parse(process.env.BENCH_PAYLOAD ?? '{"merchant":"m-1","order":"o-1","amount":1}'),
};

// The wall clock with fractions of a millisecond.
const nowMs = () => performance.timeOrigin + performance.now();

/** A record that a peer's handler calls with the job's payload: it counts starts, and notes their times. */
class Record {
  starts = [];
  lateMs = [];

  constructor(wanted, { ends = true } = {}) {
    this.wanted = wanted;
    this.ends = ends;
    this.all = new Promise((resolve) => (this.resolve = resolve));
  }

  handle = (payload) => {
    const now = nowMs();
    this.starts.push(now);
    if (payload.due !== undefined) this.lateMs.push(now - payload.due);
    if (this.starts.length === this.wanted) this.resolve();
    return this.ends ? undefined : new Promise(() => {});
  };

  /** Resolves when as many handlers as wanted have started, or none has for `maxQuiet` milliseconds. */
  async allStarted(maxQuiet) {
    for (let before = -1; before !== this.starts.length; ) {
      before = this.starts.length;
      const waiting = new AbortController();
      const tired = sleep(maxQuiet, 'tired', { signal: waiting.signal }).catch(() => {});
      if ((await Promise.race([this.all, tired])) !== 'tired') return waiting.abort();
    }
  }
}

function jobs(count, due, { withDue = false } = {}) {
  const list = Array.from({ length: count }, (_, number) => ({ due: due(number), payload: settings.payload }));
  if (settings.shuffled) shuffle(list);
  return withDue ? list.map((job) => ({ ...job, payload: { ...job.payload, due: job.due } })) : list;
}

// Limits the jobs to those that the peer handles in a few seconds.
const fewer = (peer) => Math.min(settings.count, peer.atMost);

function shuffle(list) {
  for (let last = list.length - 1; last > 0; last--) {
    const other = Math.floor(Math.random() * (last + 1));
    [list[last], list[other]] = [list[other], list[last]];
  }
}

async function offerSingly(peer, list) {
  for (const job of list) await peer.offer(job);
}

async function offerFromTasks(peer, list) {
  await fromTasks(list, (job) => peer.offer(job));
}

async function withdrawFromTasks(peer, list) {
  await fromTasks(list, (job) => peer.offerAndWithdraw(job));
}

async function fromTasks(list, does) {
  const left = list.values();
  const task = async () => {
    for (const job of left) await does(job);
  };
  await Promise.all(Array.from({ length: TASKS }, task));
}

async function offerBulk(peer, list) {
  for (let from = 0; from < list.length; from += peer.bulk) {
    await peer.offerBulk(list.slice(from, from + peer.bulk));
  }
}

async function perSecond(offering, peer, list) {
  const begun = performance.now();
  await offering(peer, list);
  return (list.length * 1_000) / (performance.now() - begun);
}

function percentile(sorted, percent) {
  return sorted[Math.max(Math.ceil((sorted.length * percent) / 100), 1) - 1];
}

const measures = {
  async throughput(peer) {
    const { concurrency } = settings;
    const count = fewer(peer);
    const first = Date.now() - 1_000;
    await offerBulk(peer, jobs(count, (number) => first + Math.floor((number * 1_000) / count)));
    const record = new Record(count);
    await peer.work(concurrency, record.handle);
    await record.allStarted(MAX_QUIET_MS);
    if (record.starts.length === 0) throw new Error('nothing was handled');
    const seconds = (record.starts.at(-1) - record.starts[0]) / 1_000;
    return { handled: record.starts.length, seconds, per_s: (record.starts.length - 1) / seconds };
  },

  async lateness(peer) {
    const { count, concurrency, rate } = settings;
    const record = new Record(count);
    await peer.work(concurrency, record.handle);
    const first = Date.now() + 2_000 + Math.ceil(count / 2);
    await offerFromTasks(peer, jobs(count, (number) => first + Math.floor((number * 1_000) / rate), { withDue: true }));
    if (Date.now() >= first) throw new Error('offering took longer than was left until the first job was due');
    await record.allStarted(first - Date.now() + (count * 1_000) / rate + MAX_QUIET_MS);
    if (record.lateMs.length === 0) throw new Error('nothing was handled');
    const late = record.lateMs.sort((a, b) => a - b);
    return {
      handled: late.length,
      early: late.filter((ms) => ms < 0).length,
      p50_ms: percentile(late, 50),
      p99_ms: percentile(late, 99),
      max_ms: percentile(late, 100),
    };
  },

  async arm(peer) {
    const inAnHour = () => jobs(fewer(peer), () => Date.now() + HOUR_MS);
    return {
      single_per_s: await perSecond(offerSingly, peer, inAnHour()),
      concurrent_per_s: await perSecond(offerFromTasks, peer, inAnHour()),
      bulk_per_s: await perSecond(offerBulk, peer, inAnHour()),
    };
  },

  async arm_cancel(peer) {
    const list = jobs(fewer(peer), () => Date.now() + HOUR_MS);
    return { pairs_per_s: await perSecond(withdrawFromTasks, peer, list) };
  },

  async lives(peer) {
    const count = fewer(peer);
    const record = new Record(count);
    await peer.work(settings.concurrency, record.handle);
    const begun = nowMs();
    await offerFromTasks(peer, jobs(count, () => Date.now()));
    await record.allStarted(MAX_QUIET_MS);
    if (record.starts.length === 0) throw new Error('nothing was handled');
    // A handler does nothing, so its start is its end.
    const seconds = (record.starts.at(-1) - begun) / 1_000;
    return { handled: record.starts.length, lives_per_s: record.starts.length / seconds, seconds };
  },

  async bytes(peer) {
    const count = fewer(peer);
    await offerBulk(peer, jobs(count, () => Date.now() + DAY_MS));
    return { armed: count };
  },

  async idle(peer) {
    await peer.work(settings.concurrency, () => {});
    await sleep(settings.count * 1_000);
    return { seconds: settings.count };
  },

  async kill(peer) {
    const record = new Record(KILLED, { ends: false });
    await peer.work(Math.max(settings.concurrency, KILLED), record.handle);
    await offerSingly(peer, jobs(KILLED, () => Date.now()));
    await record.allStarted(MAX_QUIET_MS);
    if (record.starts.length < KILLED) throw new Error(`no more than ${record.starts.length} handlers have begun`);
    console.log(JSON.stringify({ started: KILLED }));
    await new Promise(() => {});
  },

  async kill_again(peer) {
    const begun = nowMs();
    const record = new Record(KILLED);
    await peer.work(Math.max(settings.concurrency, KILLED), record.handle);
    await Promise.race([record.all, sleep(KILL_MAX_WAIT_MS)]);
    return { again: record.starts.length, seconds: record.starts.map((at) => (at - begun) / 1_000) };
  },
};

/** Runs the measure of the first argument, and prints the result as the last line. */
export async function main(Peer) {
  const name = process.argv[2];
  if (name === 'describe') return console.log(JSON.stringify(Peer.describe()));
  if (!Object.hasOwn(measures, name)) process.exit(78);
  const result = await measures[name](await Peer.connect(settings));
  console.log(JSON.stringify(result));
  process.exit(0);
}
