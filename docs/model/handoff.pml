/*
 * The handoff of one partition between live nodes. README.md says what is modelled, and how it is run.
 *
 * BROKEN is the rule that is left out, 0 for none:
 *   1  the mark is put by itself, after the switch
 *   2  the mark says what has been sent instead of what has been acknowledged
 *   3  abandoning a handoff leaves its record as it is, so that a switch which comes late still finds it
 *   4  a term does not begin in hold
 *   5  the switch does not ask whether the donor still owns the partition
 */
#ifndef BROKEN
#define BROKEN 0
#endif
#ifndef MONGO
#define MONGO 0    /* 1: marks stand in another store than the owner keys, with a fence of their own */
#endif
#ifndef NODES
#define NODES 2
#endif
#ifndef EVENTS
#define EVENTS 2
#endif
#ifndef HANDOFFS
#define HANDOFFS 1 /* how often one is begun */
#endif
#ifndef FAULTS
#define FAULTS 1   /* crashes, and freezes or cuts that last longer than the lease is trusted */
#endif
#ifndef LOSSES
#define LOSSES 1   /* requests and answers that get lost */
#endif

#define NOBODY 7
#define SESSIONS 2
#define KEEPER 0   /* keeps its own position, and gives it when it attaches */
#define MARKED 1   /* keeps none: it begins at the mark that its node found */

mtype = { NONE, PREPARED, READY, SWITCHED };     /* the record of a handoff */
mtype = { RESTING, MOVING, SWITCHING, OVERLAP }; /* what a donor is at */
mtype = { NOTHING, DONE, REFUSED };              /* what was answered */
mtype = { SAVE, PUT, SWITCH };                   /* what is asked of the store */

/* The store. */
byte revision = 1;
byte owner = 0, epoch = 1; /* the owner key, and its revision */
bool lease[NODES];
mtype record = NONE;
byte recordAt, from = NOBODY, to = NOBODY;
byte mark;
byte fence = 1;            /* the epoch that the mark is claimed for; it counts where MONGO */

/* How far each session has handled the log, which has EVENTS; both want every one, and nodes read as slowly as they like. */
byte had[SESSIONS];

typedef Node {
	bool up, trusted;        /* trusted: its clock says that the lease has not ended */
	byte term;               /* the epoch under which it serves, 0 for none */
	byte hold;               /* the mark that the term began with */
	byte saved;              /* the last mark that it has sent */
	mtype step;
	byte seen;               /* the revision of the record that its switch names */
	mtype answer;
	bool attached[SESSIONS];
	byte sent[SESSIONS], acked[SESSIONS]
};
Node node[NODES];

chan net = [2] of { mtype, byte, byte, byte, byte }; /* what, by whom, epoch, revision of the record, position */

byte handoffs, faults, losses;
byte abandoned = 255;      /* the revision of a record that was abandoned */
bool served[24];           /* the epochs under which somebody has served */

#define MIN(a, b)   ((a) < (b) -> (a) : (b))
#define live(n)     (node[n].up && node[n].trusted && lease[n])
#define owning(n)   (node[n].up && node[n].trusted && node[n].term != 0)
#define serving(n)  (node[n].up && node[n].trusted && (node[n].term != 0 || node[n].step == OVERLAP))
#define owns(n, e)  (owner == (n) && epoch == (e))

/* How far a mark may go. In hold, that is until the session is there which depends on marks, it stands where the term found it. */
#if BROKEN == 2
#define until(n, s) node[n].sent[s]
#else
#define until(n, s) node[n].acked[s]
#endif
#if BROKEN == 4
#define held(n)     EVENTS
#else
#define held(n)     node[n].hold
#endif
#define low(n)      MIN((node[n].attached[KEEPER] -> until(n, KEEPER) : EVENTS), (node[n].attached[MARKED] -> until(n, MARKED) : held(n)))

inline putMark(n, e, p) {
	if
	:: p > mark ->
		assert(MONGO || owns(n, e)); /* no mark by a deposed owner */
		assert(p <= had[MARKED]);    /* no mark beyond what those have handled who depend on it */
		mark = p
	:: else
	fi
}

inline clearRecord() { revision++; recordAt = revision; record = NONE; from = NOBODY; to = NOBODY }

inline endTerm(n) {
	node[n].term = 0; node[n].hold = 0; node[n].saved = 0; node[n].step = RESTING; node[n].seen = 0; node[n].answer = NOTHING;
	node[n].attached[KEEPER] = false; node[n].sent[KEEPER] = 0; node[n].acked[KEEPER] = 0;
	node[n].attached[MARKED] = false; node[n].sent[MARKED] = 0; node[n].acked[MARKED] = 0
}

inline attach(n, s, p) { node[n].attached[s] = true; node[n].sent[s] = p; node[n].acked[s] = p }

/* A session handles what follows what it has had, and drops what it has had. Anything further on would be a loss. */
inline handle(n, s) {
	node[n].acked[s]++;
	assert(node[n].acked[s] <= had[s] + 1);
	if :: node[n].acked[s] > had[s] -> had[s] = node[n].acked[s] :: else fi
}

/* What became of a switch, the record tells. Where nothing has become of it the handoff is abandoned, and the switch that may still come
 * finds another record than it names. */
inline settle(n) {
	if
	:: record == SWITCHED && from == n -> node[n].step = OVERLAP; node[n].term = 0; node[n].seen = 0; node[n].answer = NOTHING
	:: else ->
		if
		:: from == n ->
			abandoned = recordAt;
#if BROKEN == 3
			revision++; record = NONE; from = NOBODY
#else
			clearRecord()
#endif
		:: else
		fi;
		if
		:: owns(n, node[n].term) -> node[n].step = RESTING; node[n].seen = 0; node[n].answer = NOTHING
		:: else -> endTerm(n)
		fi
	fi
}

/* The store takes what it is asked in order, as late as it likes. */
active proctype Store() {
	mtype what; byte n, e, r, p;
end:
	do
	:: atomic { net?what,n,e,r,p ->
		if
		:: what == SAVE && (MONGO -> fence == e : owns(n, e)) -> putMark(n, e, p)
		:: what == SAVE && !(MONGO -> fence == e : owns(n, e)) /* fenced */
		:: what == PUT -> putMark(n, e, p)
		:: what == SWITCH ->
			if
			:: (BROKEN == 5 || owns(n, e)) && recordAt == r && (record == READY || BROKEN == 3 && to != NOBODY) && lease[to] ->
				assert(owns(n, e));      /* only its owner gives a partition away */
				assert(r != abandoned);  /* what was abandoned stays abandoned */
#if !MONGO && BROKEN != 1
				putMark(n, e, p);
#endif
				revision++; owner = to; epoch = revision; record = SWITCHED; recordAt = revision;
				node[n].answer = (node[n].step == SWITCHING && node[n].seen == r -> DONE : node[n].answer)
			:: else ->
				node[n].answer = (node[n].step == SWITCHING && node[n].seen == r -> REFUSED : node[n].answer)
			fi
		fi;
		what = 0; n = 0; e = 0; r = 0; p = 0 }
	:: atomic { nempty(net) && losses < LOSSES -> losses++; net?what,n,e,r,p; what = 0; n = 0; e = 0; r = 0; p = 0 }
	od
}

proctype Member(byte n) {
	byte other;
end:
	do
	/* Faults. A node that stands still is one that takes no step here; its clock has gone on when it does. */
	:: atomic { node[n].up && faults < FAULTS -> faults++; endTerm(n); node[n].up = false; node[n].trusted = false }
	:: atomic { node[n].trusted && faults < FAULTS -> faults++; node[n].trusted = false }
	:: atomic { node[n].answer != NOTHING && losses < LOSSES -> losses++; node[n].answer = NOTHING }
	:: atomic { owner == n && faults < FAULTS -> faults++; revision++; owner = NOBODY; epoch = 0 } /* evicted, or a mark was rewound */
	/* A lease ends, and takes with it what stands under it: the owner key, a donor's record, a recipient's readiness. */
	:: atomic { lease[n] && !node[n].trusted ->
		lease[n] = false; revision++;
		if :: owner == n -> owner = NOBODY; epoch = 0 :: else fi;
		if
		:: from == n -> clearRecord()
		:: to == n && record == READY -> record = PREPARED; recordAt = revision
		:: else
		fi }
	:: atomic { !lease[n] && node[n].up && node[n].term == 0 && node[n].step == RESTING -> lease[n] = true; node[n].trusted = true }
	:: atomic { !lease[n] && !node[n].up -> node[n].up = true }

	/* Terms: claimed where nobody owns, begun where the owner key says so, ended where trust is gone or the key is another's. */
	:: atomic { live(n) && owner == NOBODY && node[n].step == RESTING -> revision++; owner = n; epoch = revision }
	:: atomic { live(n) && owner == n && node[n].term == 0 && node[n].step == RESTING ->
		assert(!served[epoch]); served[epoch] = true; /* one owner per epoch */
		fence = epoch;
		node[n].term = epoch; node[n].hold = mark; node[n].saved = mark }
	:: atomic { node[n].up && !node[n].trusted && (node[n].term != 0 || node[n].step != RESTING) -> endTerm(n) }
	:: atomic { owning(n) && node[n].step == RESTING && !owns(n, node[n].term) -> endTerm(n) }

	/* The donor. */
	:: atomic { owning(n) && owns(n, node[n].term) && node[n].step == RESTING && record == NONE && handoffs < HANDOFFS ->
		handoffs++; revision++; record = PREPARED; recordAt = revision; from = n;
		other = (n + 1) % NODES;
#if NODES > 2
		if :: true :: other = (n + 2) % NODES fi;
#endif
		to = other; node[n].step = MOVING; other = 0 }
	:: atomic { owning(n) && node[n].step == MOVING && record == READY && from == n && nfull(net) ->
		node[n].step = SWITCHING; node[n].seen = recordAt; node[n].answer = NOTHING;
#if MONGO
		/* Its mark is sealed from here on, and saved before the switch is sent. */
		other = low(n);
		if :: fence == node[n].term -> putMark(n, node[n].term, other) :: else fi;
		other = 0;
#endif
		net!SWITCH,n,node[n].term,recordAt,low(n) }
	:: atomic { owning(n) && node[n].step == SWITCHING && node[n].answer == DONE && (BROKEN != 1 || nfull(net)) ->
#if BROKEN == 1
		net!PUT,n,node[n].term,0,low(n);
#endif
		node[n].step = OVERLAP; node[n].term = 0; node[n].seen = 0; node[n].answer = NOTHING }
	:: atomic { owning(n) && node[n].step == SWITCHING && node[n].answer != DONE -> settle(n) } /* refused, or no answer in time */
	:: atomic { owning(n) && node[n].step == MOVING -> settle(n) }                              /* the recipient was not ready in time */
	:: atomic { node[n].up && node[n].step == OVERLAP ->                                        /* the overlap is over */
		if :: from == n -> clearRecord() :: else fi;
		endTerm(n) }

	/* The recipient. That it serves is a term like any other. */
	:: atomic { live(n) && record == PREPARED && to == n -> revision++; record = READY; recordAt = revision }

	/* Marks apart from a switch. */
	:: atomic { owning(n) && node[n].step != SWITCHING && low(n) > node[n].saved && nfull(net) ->
		node[n].saved = low(n); net!SAVE,n,node[n].term,0,low(n) }

	/* Sessions. One that keeps its position attaches wherever it is served, or told that it will be. */
	:: atomic { node[n].up && !node[n].attached[KEEPER] && (serving(n) || record != NONE && to == n) -> attach(n, KEEPER, had[KEEPER]) }
	:: atomic { owning(n) && !node[n].attached[MARKED] -> assert(node[n].hold <= had[MARKED]); attach(n, MARKED, node[n].hold) }
	:: atomic { serving(n) && node[n].attached[KEEPER] && node[n].sent[KEEPER] < EVENTS -> node[n].sent[KEEPER]++ }
	:: atomic { serving(n) && node[n].attached[MARKED] && node[n].sent[MARKED] < EVENTS -> node[n].sent[MARKED]++ }
	:: atomic { node[n].attached[KEEPER] && node[n].acked[KEEPER] < node[n].sent[KEEPER] -> handle(n, KEEPER) }
	:: atomic { node[n].attached[MARKED] && node[n].acked[MARKED] < node[n].sent[MARKED] -> handle(n, MARKED) }
	od
}

/* Who waits for ever makes an invalid end state: everything stands still, and somebody has not had every event. */
active [SESSIONS] proctype Session() {
	had[_pid - 1] == EVENTS
}

init {
	atomic {
		byte n;
		for (n : 0 .. NODES - 1) {
			node[n].step = RESTING; node[n].answer = NOTHING; node[n].up = true; node[n].trusted = true; lease[n] = true
		}
		for (n : 0 .. NODES - 1) { run Member(n) }
	}
}
