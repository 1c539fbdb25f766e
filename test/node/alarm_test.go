package node

import (
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	devetcd "github.com/mongostream/streamer/dev/etcd"
	devmongo "github.com/mongostream/streamer/dev/mongo"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/etcd/etcdtest"
)

// alarm raises or ends the alarm of an etcd that has no space left, under which it refuses every
// write.
func alarm(t *testing.T, endpoints []string, action etcdserverpb.AlarmRequest_AlarmAction) {
	t.Helper()
	client := etcdtest.Client(t, endpoints)
	defer func() { _ = client.Close() }()
	status, err := client.Status(t.Context(), endpoints[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := etcdserverpb.NewMaintenanceClient(client.ActiveConnection()).Alarm(t.Context(), &etcdserverpb.AlarmRequest{
		Action: action, Alarm: etcdserverpb.AlarmType_NOSPACE, MemberID: status.Header.MemberId,
	}); err != nil {
		t.Fatal(err)
	}
	_, err = client.Put(t.Context(), "written", "")
	if refused := err != nil; refused != (action == etcdserverpb.AlarmRequest_ACTIVATE) {
		t.Fatalf("a write: %v", err)
	}
}

// An etcd without space is a problem, with its code and remedy, while those that are
// connected are served on; with space again it is well.
func TestAlarmOfEtcdIsAProblem(t *testing.T) {
	t.Parallel()
	endpoints := etcdtest.Start(t, devetcd.Config{Dir: t.TempDir()})
	r := newRig(t, devmongo.Config{}, "STREAMER_ETCD_ENDPOINTS="+strings.Join(endpoints, ","))
	n := r.begin()
	n.sees(r.series(0, 10)...)
	alarm(t, endpoints, etcdserverpb.AlarmRequest_ACTIVATE)
	n.until("the problem is told", func() bool { return n.has("etcd", fault.EtcdAlarm) })
	n.sees(r.series(10, 20)...)
	alarm(t, endpoints, etcdserverpb.AlarmRequest_DEACTIVATE)
	n.until("the problem is over", func() bool { return !n.has("etcd", fault.EtcdAlarm) })
	n.sees(r.series(20, 30)...)
}
