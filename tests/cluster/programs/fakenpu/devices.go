package main

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"sync"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	resourceName = "huawei.com/Ascend910"
	devicePrefix = "Ascend910-"
	// An A2 board has two devices on each NUMA node; the kubelet's topology
	// manager reads the hint, the fake machine ignores it.
	devicesPerNUMANode = 2
)

// devices is the table of the node's NPUs. Whoever lists it is told of every
// change by a closed channel: a listener can be slow without missing the last state.
type devices struct {
	mutex   sync.Mutex
	healthy map[string]bool
	changed chan struct{}
}

func newDevices(count int) *devices {
	table := &devices{healthy: map[string]bool{}, changed: make(chan struct{})}
	for index := range count {
		table.healthy[devicePrefix+strconv.Itoa(index)] = true
	}
	return table
}

func (d *devices) set(name string, healthy bool) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if _, known := d.healthy[name]; !known {
		return fmt.Errorf("no device %q on this node; it has %s0 to %s%d",
			name, devicePrefix, devicePrefix, len(d.healthy)-1)
	}
	d.healthy[name] = healthy
	close(d.changed)
	d.changed = make(chan struct{})
	return nil
}

// list returns the devices in physical order and the channel that closes at the next change.
func (d *devices) list() ([]*api.Device, <-chan struct{}) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	found := make([]*api.Device, 0, len(d.healthy))
	for name, healthy := range d.healthy {
		health := api.Healthy
		if !healthy {
			health = api.Unhealthy
		}
		numa := int64(physicalIndex(name) / devicesPerNUMANode)
		found = append(found, &api.Device{
			ID: name, Health: health,
			Topology: &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: numa}}},
		})
	}
	sort.Slice(found, func(i, j int) bool { return physicalIndex(found[i].ID) < physicalIndex(found[j].ID) })
	return found, d.changed
}

func physicalIndex(name string) int {
	index, err := strconv.Atoi(strings.TrimPrefix(name, devicePrefix))
	if err != nil {
		return -1
	}
	return index
}

func sortByIndex(names []string) []string {
	sorted := append([]string(nil), names...)
	sort.Slice(sorted, func(i, j int) bool { return physicalIndex(sorted[i]) < physicalIndex(sorted[j]) })
	return sorted
}
