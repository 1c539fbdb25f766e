package process

import (
	"bufio"
	"cmp"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mongostream/streamer/fault"
)

// patience bounds every wait for something that must come.
const patience = 3 * time.Minute * pace

// nodeRuns is in the line that a node logs when it owns its partitions and has read their marks.
const nodeRuns = `msg="node runs"`

// A journal keeps what a process writes, line by line.
type journal struct {
	mu    sync.Mutex
	lines []string
	over  bool
	more  chan struct{} // closed when there is more, or there will be none
}

func newJournal() *journal { return &journal{more: make(chan struct{})} }

// read reads lines to the end. One that is cut off, by a kill, is dropped.
func (j *journal) read(r io.Reader) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			j.add("", true)
			return
		}
		j.add(strings.TrimSuffix(line, "\n"), false)
	}
}

func (j *journal) add(line string, over bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.over = over; !over {
		j.lines = append(j.lines, line)
	}
	close(j.more)
	j.more = make(chan struct{})
}

// all returns the lines so far.
func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

// find returns the first line from a number on that contains the text; otherwise the number to go
// on from, and what to wait for, which is nil where no more will come.
func (j *journal) find(text string, from int) (line string, next int, wait <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, line := range j.lines[from:] {
		if strings.Contains(line, text) {
			return line, 0, nil
		}
	}
	if j.over {
		return "", 0, nil
	}
	return "", len(j.lines), j.more
}

// A launch says how to start a process.
type launch struct {
	// program defaults to the one that TestMain has built.
	program string
	args    []string
	env     []string
	// line takes each line of standard output, in a goroutine of the process's own. By default the
	// process keeps them.
	line func(string)
	// stdout is where standard output goes instead.
	stdout *os.File
	// stderr is where standard error goes instead of the process's notes.
	stderr *os.File
}

// A process is the program under test, running or ended.
type process struct {
	t      testing.TB
	cmd    *exec.Cmd
	begun  time.Time
	output *journal      // standard output
	notes  *journal      // standard error
	ended  chan struct{} // closed when it has ended and all that it wrote has been read
}

// start starts the program. What is still running when the test ends is killed.
func start(t testing.TB, l launch) *process {
	t.Helper()
	p := &process{t: t, begun: time.Now(), output: newJournal(), notes: newJournal(), ended: make(chan struct{})}
	p.cmd = exec.Command(cmp.Or(l.program, os.Getenv(binaryVariable)), l.args...) //nolint:noctx // ended by signals, which is what is tested
	p.cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "STREAMER_") }), append([]string{"XDG_CONFIG_HOME=/nowhere"}, l.env...)...)
	var reading sync.WaitGroup
	pipe := func(take func(io.Reader)) *os.File {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		reading.Go(func() {
			defer func() { _ = r.Close() }()
			take(r)
		})
		return w
	}
	stdout, stderr := l.stdout, l.stderr
	if stderr == nil {
		stderr = pipe(p.notes.read)
	}
	switch {
	case l.line != nil:
		stdout = pipe(func(r io.Reader) { eachLine(r, l.line) })
	case stdout == nil:
		stdout = pipe(p.output.read)
	}
	p.cmd.Stdout, p.cmd.Stderr = stdout, stderr
	err := p.cmd.Start()
	if stderr != l.stderr {
		_ = stderr.Close()
	}
	if stdout != l.stdout {
		_ = stdout.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		reading.Wait()
		_ = p.cmd.Wait() // the state tells
	}()
	t.Cleanup(p.cleanup)
	return p
}

// eachLine hands over whole lines.
func eachLine(r io.Reader, take func(string)) {
	lines := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		take(strings.TrimSuffix(line, "\n"))
	}
}

func (p *process) cleanup() {
	_ = p.cmd.Process.Kill()
	<-p.ended
	notes := strings.Join(p.notes.all(), "\n")
	if strings.Contains(notes, "DATA RACE") {
		p.t.Error("the process has a data race")
	}
	if p.t.Failed() {
		p.t.Logf("streamer %s:\n%s", strings.Join(p.cmd.Args[1:], " "), notes)
	}
}

// await waits for a line of standard error that contains the text.
func (p *process) await(text string) string {
	p.t.Helper()
	return p.awaitIn(p.notes, text)
}

// awaitIn waits for a line of a journal that contains the text.
func (p *process) awaitIn(j *journal, text string) string {
	p.t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for from := 0; ; {
		line, next, wait := j.find(text, from)
		switch {
		case line != "":
			return line
		case wait == nil:
			p.t.Fatalf("the process ended without %q", text)
		}
		from = next
		select {
		case <-wait:
		case <-timeout.C:
			p.t.Fatalf("no %q in time", text)
		}
	}
}

// noted reports whether a line of standard error contains the text.
func (p *process) noted(text string) bool {
	line, _, _ := p.notes.find(text, 0)
	return line != ""
}

// address waits for the node to run and returns where it serves HTTP.
func (p *process) address() string {
	p.t.Helper()
	_, rest, _ := strings.Cut(p.await(nodeRuns), " address=")
	address, _, _ := strings.Cut(rest, " ")
	return "http://" + address
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("signal %v: %v", s, err)
	}
}

// wait waits for the process to end and returns its exit code, -1 if a signal ended it.
func (p *process) wait() int {
	p.t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-p.ended:
	case <-timeout.C:
		p.t.Fatal("the process does not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

// kill ends the process as a crash would.
func (p *process) kill() {
	p.t.Helper()
	p.signal(os.Kill)
	p.wait()
}

// refused waits for the process to end with one message for a person: the code, what it says of
// this case, and the remedy.
func (p *process) refused(code fault.Code, says ...string) {
	p.t.Helper()
	if exit, want := p.wait(), exitOf(p.cmd.Args, code); exit != want {
		p.t.Errorf("exit code %d, want %d", exit, want)
	}
	entry, _ := fault.Lookup(code)
	var messages, remedies []string
	for _, line := range p.notes.all() {
		switch text, isRemedy := strings.CutPrefix(line, "  remedy: "); {
		case isRemedy:
			remedies = append(remedies, text)
		case strings.HasPrefix(line, "  more:   "), strings.HasPrefix(line, "time="):
		default:
			messages = append(messages, line)
		}
	}
	if len(messages) != 1 || len(remedies) != 1 {
		p.t.Fatalf("%d messages, %d remedies; want one of each", len(messages), len(remedies))
	}
	for _, want := range append(says, "streamer: ", string(code)+": ") {
		if !strings.Contains(messages[0], want) {
			p.t.Errorf("the message does not say %q: %s", want, messages[0])
		}
	}
	if remedies[0] != entry.Remedy {
		p.t.Errorf("remedy %q", remedies[0])
	}
	if !p.noted("streamer explain " + string(code)) {
		p.t.Error("the message does not say where to read more")
	}
}

// exitOf is the exit code that docs/reference/commands.md gives to a fault. What check and config
// check find is their result.
func exitOf(args []string, code fault.Code) int {
	if args[1] == "config" && code != fault.CommandBadArgument || args[1] == "check" && code == fault.MongoUnreachable || args[1] == "check" && code == fault.EtcdUnreachable {
		return 1
	}
	switch code {
	case fault.CommandBadArgument, fault.ConfigBadValue, fault.ConfigConflict, fault.ConfigUnknownKey, fault.ConfigUnreadable, fault.ParameterLocked, fault.SessionBadRequest:
		return 2
	case fault.NodeUnreachable, fault.MongoUnreachable, fault.EtcdUnreachable:
		return 3
	default:
		return 1
	}
}
