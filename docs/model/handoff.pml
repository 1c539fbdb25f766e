/*
 * The handoff of one partition in one transaction. README.md says what is modelled, and how it is run.
 *
 * BROKEN is the rule that is left out, 0 for none:
 *   1  the donor goes on serving while it asks for the transaction
 *   2  the transaction does not ask whether the donor still owns the partition
 *   3  the transaction does not ask whether the target is still a member
 *   4  a checkpoint is saved without a look at the owner's epoch
 *   5  a checkpoint is saved without a look at its generation
 *   6  a checkpoint says what was sent instead of what was acknowledged
 */
#ifndef BROKEN
#define BROKEN 0
#endif
#ifndef NODES
#define NODES 2
#endif
#ifndef EVENTS
#define EVENTS 2
#endif
#ifndef FAULTS
#define FAULTS 1   /* kills, freezes past the lease, evictions, rewinds */
#endif
#ifndef LOSSES
#define LOSSES 1   /* requests and answers that get lost */
#endif
#ifndef HANDOFFS
#define HANDOFFS 1
#endif

#define NOBODY 7

mtype = { SAVE, HAND };
mtype = { SERVING, ASKING, RESTING };

/* The store: the owner's key with its revision, which is the epoch; memberships, each of a process; the checkpoint. */
byte revision = 1, owner = NOBODY, epoch;
byte member[NODES];        /* the process that is a member, 0 for none */
byte place, generation;    /* the checkpoint */

/* What the target of the shared subscriber has acknowledged, in the generation. */
byte acked;

typedef Node {
	byte process;      /* counts the lives, 0 while it is down */
	bool trusted;      /* its clock says that the lease has not ended */
	mtype step;
	byte term;         /* its epoch, 0 for none */
	byte term_generation;
	byte sent, done    /* handed out under the term, and acknowledged */
};
Node node[NODES];

chan net = [2] of { mtype, byte, byte, byte, byte, byte }; /* what, by whom, epoch, generation, place or target, the target's process */

byte faults, losses, handoffs;
bool evicted;

#define relies(n)   (node[n].process != 0 && node[n].trusted && node[n].term != 0 && node[n].step == SERVING)
#define owns(n, e)  (owner == (n) && epoch == (e))

inline finish(n) { node[n].term = 0; node[n].term_generation = 0; node[n].sent = 0; node[n].done = 0; node[n].step = RESTING }

#if BROKEN == 6
#define acknowledged(n) node[n].sent
#else
#define acknowledged(n) node[n].done
#endif

inline save(n, e, g, p) {
	if
	:: (BROKEN == 4 || owns(n, e)) && (BROKEN == 5 || g == generation) && p > place ->
		assert(owns(n, e));          /* no checkpoint of a deposed owner */
		assert(g == generation);     /* none of a generation that is over */
		assert(p <= acked);          /* none beyond what was acknowledged */
		place = p
	:: else
	fi
}

/* The store carries out what it is asked in order, as late as it likes, also when nobody waits for it any more. */
active proctype Store() {
	mtype what; byte n, e, g, x, y;
end:
	do
	:: atomic { net?what,n,e,g,x,y ->
		if
		:: what == SAVE -> save(n, e, g, x)
		:: what == HAND && (BROKEN == 2 || owns(n, e)) && (BROKEN == 3 || member[x] == y) ->
			assert(owns(n, e));          /* only its owner hands a partition over */
			assert(member[x] == y);      /* a key stands under a lease that there is */
			revision++; owner = x; epoch = revision
		:: else
		fi;
		n = 0; e = 0; g = 0; x = 0; y = 0 }
	:: atomic { nempty(net) && losses < LOSSES -> losses++; net?what,n,e,g,x,y; n = 0; e = 0; g = 0; x = 0; y = 0 }
	od
}

proctype Member(byte n) {
	byte other;
end:
	do
	/* Faults. A process that stands still takes no step; its clock has gone on when it does. */
	:: atomic { node[n].process != 0 && faults < FAULTS -> faults++; finish(n); node[n].process = 0; node[n].trusted = false }
	:: atomic { node[n].trusted && faults < FAULTS -> faults++; node[n].trusted = false }
	:: atomic { owner == n && faults < FAULTS -> faults++; evicted = true; revision++; owner = NOBODY; epoch = 0 }
	:: atomic { n == 0 && place > 0 && faults < FAULTS -> faults++; generation++; place--; acked = place }

	/* A lease ends once nobody trusts it any more, and takes the owner's key with it; a new one is another process's, or another life's. */
	:: atomic { member[n] != 0 && !node[n].trusted ->
		member[n] = 0; revision++;
		if :: owner == n -> owner = NOBODY; epoch = 0 :: else fi }
	:: atomic { member[n] == 0 && node[n].term == 0 -> revision++; node[n].process = revision; member[n] = revision; node[n].trusted = true }

	/* Terms: the key is claimed where nobody has it. Whoever has it, claimed or handed over, takes its checkpoint and serves. */
	:: atomic { node[n].trusted && member[n] == node[n].process && owner == NOBODY && node[n].term == 0 -> revision++; owner = n; epoch = revision }
	:: atomic { node[n].trusted && member[n] == node[n].process && owner == n && node[n].term == 0 && node[n].step == RESTING ->
		node[n].term = epoch; node[n].term_generation = generation; node[n].sent = place; node[n].done = place; node[n].step = SERVING }
	:: atomic { node[n].term != 0 && (!node[n].trusted || !owns(n, node[n].term)) -> finish(n) } /* it learns that */
	:: atomic { relies(n) && node[n].term_generation != generation ->                        /* and of a rewind: it goes there */
		node[n].term_generation = generation; node[n].sent = place; node[n].done = place }

	/* The target of the subscriber gets what follows; of what comes again it has the same. It acknowledges in order. */
	:: atomic { relies(n) && node[n].sent < EVENTS ->
		node[n].sent++ }
	:: atomic { node[n].term != 0 && node[n].done < node[n].sent ->
		node[n].done++;
		if
		:: node[n].term_generation == generation && node[n].done > acked ->
			assert(node[n].done == acked + 1); /* nothing is left out */
			acked = node[n].done
		:: else
		fi }

	/* Checkpoints. */
	:: atomic { relies(n) && acknowledged(n) > place && nfull(net) ->
		net!SAVE,n,node[n].term,node[n].term_generation,acknowledged(n),0 }

	/* The donor ends its term, having saved, and asks for the transaction: whatever becomes of it, the partition is not its own any more. What could
	 * not be handed over is given back. */
	:: atomic { relies(n) && handoffs < HANDOFFS && len(net) == 0 ->
		handoffs++; other = (n + 1) % NODES;
#if NODES > 2
		if :: true :: other = (n + 2) % NODES fi;
#endif
		if
		:: node[other].process != 0 && member[other] == node[other].process ->
			net!SAVE,n,node[n].term,node[n].term_generation,acknowledged(n),0;
			net!HAND,n,node[n].term,0,other,node[other].process;
#if BROKEN != 1
			node[n].step = ASKING
#endif
		:: else
		fi;
		other = 0 }
	:: atomic { node[n].step == ASKING && node[n].trusted ->       /* an answer, or none in time: the key, if it is there still, is given back */
		if :: owns(n, node[n].term) -> revision++; owner = NOBODY; epoch = 0 :: else fi;
		finish(n) }
	od
}

/* At most one owner whose term lasts, but for one whose key was taken away and who does not know yet. */
active proctype Watch() {
end:
	atomic { relies(0) && relies(1) && !evicted -> assert(false) }
}

/* The place never passes what was acknowledged, and everything comes in the end. */
active proctype Target() {
	(acked == EVENTS && place <= acked)
}

init {
	atomic {
		byte n;
		for (n : 0 .. NODES - 1) { node[n].step = RESTING }
		for (n : 0 .. NODES - 1) { run Member(n) }
	}
}
