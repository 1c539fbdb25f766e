// The sections of the page, in their order. A section is {id, title, build(root)}; build makes its elements and returns update(state, now). One with
// cluster: true is hidden from identities that may not see the cluster. seen: true is what nodes say of themselves, through etcd, and is marked
// when that is old.
// To add one, write it in sections/ and list it here.

import {overview} from './sections/overview.js';
import {hour} from './sections/hour.js';
import {window_} from './sections/window.js';
import {nodes} from './sections/nodes.js';
import {partitions} from './sections/partitions.js';
import {subscribers} from './sections/subscribers.js';
import {snapshots} from './sections/snapshots.js';
import {sinks} from './sections/sinks.js';
import {supervisor} from './sections/supervisor.js';
import {handoffs} from './sections/handoffs.js';
import {losses} from './sections/losses.js';
import {notices} from './sections/notices.js';

export const sections = [overview, hour, nodes, partitions, window_, subscribers, snapshots, sinks, supervisor, handoffs, losses, notices];
