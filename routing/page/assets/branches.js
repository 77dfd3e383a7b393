// What was said otherwise: the other versions of a conversation, from a message on.
//
// A branch is `{messages, forks}`, where `messages` are those that are shown. A fork is `{at, tails,
// active}`: from the message at index `at` on there are as many branches as it has tails; the one
// that is shown is null among them, as it is in `messages` itself.

const forkAt = (branch, at) => (branch.forks ?? []).find((fork) => fork.at === at);

function stow(branch, fork) {
  fork.tails[fork.active] = {
    messages: branch.messages.splice(fork.at),
    forks: branch.forks.filter(({ at }) => at > fork.at),
  };
  branch.forks = branch.forks.filter(({ at }) => at <= fork.at);
}

/** Begin another version of what is said from the message at index `at` on: nothing, for now. */
export function fork(branch, at) {
  branch.forks ??= [];
  let found = forkAt(branch, at);
  if (!found) branch.forks.push((found = { at, tails: [null], active: 0 }));
  stow(branch, found);
  found.active = found.tails.push(null) - 1;
}

/** Show the version `place` of what is said from the message at index `at` on. */
export function choose(branch, at, place) {
  const found = forkAt(branch, at);
  if (!found || place === found.active || !found.tails[place]) return;
  stow(branch, found);
  const { messages, forks } = found.tails[place];
  branch.messages.push(...messages);
  branch.forks.push(...forks);
  found.tails[place] = null;
  found.active = place;
}

/** How many versions there are of the message at index `at`, and which is shown, counted from 0. */
export function versions(branch, at) {
  const found = forkAt(branch, at);
  return found ? { count: found.tails.length, active: found.active } : { count: 1, active: 0 };
}

/** Go back to the version before, where the one that was begun has stayed empty. */
export function dropEmpty(branch) {
  const found = forkAt(branch, branch.messages.length);
  if (!found || found.tails.length < 2) return false;
  const empty = found.active;
  choose(branch, found.at, empty ? empty - 1 : 1);
  found.tails.splice(empty, 1);
  if (found.active > empty) found.active -= 1;
  if (found.tails.length === 1) branch.forks = branch.forks.filter((each) => each !== found);
  return true;
}
