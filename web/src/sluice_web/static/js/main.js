// SPDX-License-Identifier: GPL-2.0-or-later
// On every page: the live connection, and local times.

import { connect } from "./live.js";
import { localTimes } from "./refresh.js";

localTimes();
// A page may stay open over midnight: a time of yesterday gets its date then.
setInterval(localTimes, 60_000);
connect();
