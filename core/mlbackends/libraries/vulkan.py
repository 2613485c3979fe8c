"""The devices of a Vulkan loader, and an addition that each computes with a shader.

vulkan.json has the type and the members of each structure, and the words of the shader, whose source is
vulkan_add.spvasm.

Source: Vulkan specification, "Compute Pipelines", "Memory Allocation", "Descriptor Sets".
"""

import os
import struct

from mlbackends.base.reasons import NotUsable
from mlbackends.base.tables import table
from mlbackends.libraries.c_calls import (
    CDLL,
    PAIRS,
    Calls,
    addends,
    checked,
    ctypes,
    of_devices,
    require_sums,
)
from mlbackends.model.records import Answer, Device, Library, Presence, nonempty

#: The size of all numbers, and how many pairs one group of the shader adds.
_BYTES, _GROUP = 3 * PAIRS * 4, 64
_COMPUTE_QUEUE, _COMPUTE_STAGE, _COMPUTE_POINT = 0x2, 0x20, 1
_STORAGE, _STORAGE_USAGE = 7, 0x20
_SHADER, _SHADER_WRITES, _HOST, _HOST_READS = 0x800, 0x40, 0x4000, 0x2000
#: Visible to the host, and coherent.
_HOST_MEMORY = 0x6
_TYPE_BYTES, _FAMILY_BYTES, _LIMIT = 8, 24, 32
_HEAPS_LIMIT = 16
_TYPES = ("other", "integrated_gpu", "discrete_gpu", "virtual_gpu", "cpu")
_INCOMPATIBLE_DRIVER, _EXTENSION_NOT_PRESENT, _INCOMPLETE = -9, -7, 5
_NVIDIA = 0x10DE
_VERSION_1_1 = 1 << 22 | 1 << 12
# Offsets in VkPhysicalDeviceProperties2, its properties, VkPhysicalDeviceDriverProperties and
# VkPhysicalDeviceMemoryProperties.
_PROPERTIES_AT, _NAME_AT, _NAME_BYTES = 16, 20, 256
_LIMITS = {
    "max_storage_buffer_bytes": 324,
    "workgroup_memory_bytes": 512,
    "max_workgroup_size": 528,
}
_DRIVER_NAME_AT, _DRIVER_INFO_AT = 20, 276
_HEAP_COUNT_AT, _HEAPS_AT, _HEAP_BYTES = 260, 264, 16
#: Twice the size, so that a driver with a larger structure does not overwrite other memory.
_MEMORY_BYTES = 2 * 520
_DEVICE_LOCAL = 1


def added(opened: CDLL, library: Library) -> Answer:
    """Return the devices of a loader, each with the result of adding two arrays.

    Raises NotUsable if none computes.
    """
    # Mesa and NVIDIA must not leave files in their shader caches.
    os.environ |= {"MESA_SHADER_CACHE_DISABLE": "true", "__GL_SHADER_DISK_CACHE": "0"}
    call = Calls(opened, "vulkan", unnamed="see VkResult")
    # An instance of Vulkan 1.1, which is freed when the process ends.
    program = _structure("VkApplicationInfo", 0, 0, 0, 0, _VERSION_1_1)
    extension = (ctypes.c_char_p * 1)(b"VK_KHR_portability_enumeration")
    instance, status = ctypes.c_void_p(), 0
    # MoltenVK's devices, which do not have all of Vulkan, are listed only on request.
    for portable in (0, 1):
        names = (portable, extension if portable else 0)
        create_info = _structure("VkInstanceCreateInfo", portable, program, 0, 0, *names)
        status = call.status("vkCreateInstance", create_info, None, ctypes.byref(instance))
        if status != _INCOMPATIBLE_DRIVER:
            break
    if status in (_INCOMPATIBLE_DRIVER, _EXTENSION_NOT_PRESENT):
        raise call.failed("vkCreateInstance", status, "no-driver", "no driver loads")
    if status or not instance.value:
        raise call.failed("vkCreateInstance", status)
    listed = call.handles("vkEnumeratePhysicalDevices", instance, incomplete=_INCOMPLETE)
    if not listed:
        raise NotUsable("no-device", "Vulkan's drivers load, and none has a device")
    devices = []
    for index, handle in enumerate(listed):
        device = _described(opened, handle, index)
        devices.append(checked(device, _add, opened, call, handle, device.name))
    return of_devices(library, devices)


def _described(opened: CDLL, handle: int, index: int) -> Device:
    about_driver = _structure("VkPhysicalDeviceDriverProperties", 0, b"", b"", b"")
    properties = _structure("VkPhysicalDeviceProperties2", b"", extension=about_driver)
    memory = ctypes.create_string_buffer(_MEMORY_BYTES)
    opened.vkGetPhysicalDeviceProperties2(ctypes.c_void_p(handle), properties)
    opened.vkGetPhysicalDeviceMemoryProperties(ctypes.c_void_p(handle), memory)
    raw = properties.raw[_PROPERTIES_AT:]
    api, driver, vendor, _, kind = struct.unpack_from("5I", raw)
    (heaps,) = struct.unpack_from("I", memory.raw, _HEAP_COUNT_AT)
    local = 0
    for heap in range(min(heaps, _HEAPS_LIMIT)):
        size, flags = struct.unpack_from("QI", memory.raw, _HEAPS_AT + heap * _HEAP_BYTES)
        local += size if flags & _DEVICE_LOCAL else 0

    def text(at: int, raw: bytes = about_driver.raw) -> str:
        return raw[at : at + _NAME_BYTES].split(b"\0")[0].decode(errors="replace")

    facts = {
        "vendor_id": f"{vendor:04x}",
        "device_type": _TYPES[kind] if kind < len(_TYPES) else "other",
        "driver_name": text(_DRIVER_NAME_AT),
        "driver_info": text(_DRIVER_INFO_AT),
        **{name: struct.unpack_from("I", raw, at)[0] or None for name, at in _LIMITS.items()},
    }
    # NVIDIA encodes its driver's version differently.
    packed = f"{driver >> 22}.{driver >> 14 & 0xFF:02}.{driver >> 6 & 0xFF:02}"
    return Device(
        kind="vulkan",
        index=index,
        name=text(_NAME_AT, raw),
        presence=Presence.LOADABLE,
        memory_bytes=local or None,
        capability=version_text(api),
        driver=packed if vendor == _NVIDIA else version_text(driver),
        facts=nonempty(facts),
    )


def version_text(number: int) -> str:
    """Return a version that Vulkan packs into one number."""
    return f"{number >> 22 & 0x7F}.{number >> 12 & 0x3FF}.{number & 0xFFF}"


def _structure(name: str, *members: object, extension: object = 0) -> "ctypes.Array[ctypes.c_char]":
    """Return a Vulkan structure with its type and its members.

    A member in memory is stored as its address, and lives as long as the structure.
    """
    kind, layout = table("libraries/vulkan")["structures"][name]
    values = [
        ctypes.addressof(member) if isinstance(member, ctypes.Array) else member
        for member in (extension, *members)
    ]
    structure = ctypes.create_string_buffer(struct.pack(f"IP{layout}0P", kind, *values))
    structure.members = (extension, *members)  # type: ignore[attr-defined]
    return structure


def _add(opened: CDLL, call: Calls, gpu: int, name: str) -> None:
    """Let a device add two arrays of integers with a shader, and check every sum.

    Nothing is freed before the process ends. Raises NotUsable if a call fails, if no queue computes, or if a
    sum is wrong.
    """
    device = _Device(opened, call, gpu, name)
    buffer, address = device.buffer()
    numbers = addends()
    ctypes.memmove(address, numbers, ctypes.sizeof(numbers))
    device.run(*device.program(buffer))
    ctypes.memmove(numbers, address, ctypes.sizeof(numbers))
    require_sums(name, numbers)


class _Device:
    """An opened Vulkan device with one compute queue."""

    def __init__(self, opened: CDLL, call: Calls, gpu: int, name: str) -> None:
        self._opened = opened
        self._call = call
        self._gpu = ctypes.c_uint64(gpu)
        self._name = name
        self._family = self._compute_family()
        priority = (ctypes.c_float * 1)(1)
        queues = _structure("VkDeviceQueueCreateInfo", 0, self._family, 1, priority)
        create_info = _structure("VkDeviceCreateInfo", 0, 1, queues, 0, 0, 0, 0, 0)
        self._device = self._make("vkCreateDevice", self._gpu, create_info, None)
        self._queue = ctypes.c_uint64()
        self._opened.vkGetDeviceQueue(self._device, self._family, 0, ctypes.byref(self._queue))

    def buffer(self) -> "tuple[ctypes.c_uint64, int]":
        """Return a buffer for three arrays, and its address for the host."""
        buffer = self._create("Buffer", 0, _BYTES, _STORAGE_USAGE, 0, 0, 0)
        needs = ctypes.create_string_buffer(24)
        self._opened.vkGetBufferMemoryRequirements(self._device, buffer, needs)
        size, _, kinds = struct.unpack_from("QQI", needs)
        types = ctypes.create_string_buffer(_MEMORY_BYTES)
        self._opened.vkGetPhysicalDeviceMemoryProperties(self._gpu, types)
        (count,) = struct.unpack_from("I", types)
        for index in range(min(count, _LIMIT)):
            (flags,) = struct.unpack_from("I", types, 4 + index * _TYPE_BYTES)
            if kinds >> index & 1 and flags & _HOST_MEMORY == _HOST_MEMORY:
                break
        else:
            message = f"{self._name} has no memory that the host can write"
            raise NotUsable("unsupported-hardware", message)
        allocate_info = _structure("VkMemoryAllocateInfo", size, index)
        memory = self._make("vkAllocateMemory", self._device, allocate_info, None)
        start, whole, address = ctypes.c_uint64(), ctypes.c_uint64(_BYTES), ctypes.c_void_p()
        self._call("vkBindBufferMemory", self._device, buffer, memory, start)
        place = (self._device, memory, start, whole, 0)
        self._call("vkMapMemory", *place, ctypes.byref(address))
        return buffer, address.value or 0

    def program(
        self, buffer: "ctypes.c_uint64"
    ) -> "tuple[ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64]":
        """Return a pipeline of the shader, its layout, and the descriptor set with the buffer."""
        binding = struct.pack("IIIIP", 0, _STORAGE, 1, _COMPUTE_STAGE, 0)
        bindings = ctypes.create_string_buffer(binding)
        layouts = _array(self._create("DescriptorSetLayout", 0, 1, bindings))
        layout = self._create("PipelineLayout", 0, 1, layouts, 0, 0)
        words = table("libraries/vulkan")["shader"]
        code = (ctypes.c_uint32 * len(words))(*words)
        shader = self._create("ShaderModule", 0, ctypes.sizeof(code), code)
        main = ctypes.create_string_buffer(b"main")
        parts = (0, _COMPUTE_STAGE, shader.value, main, 0)
        stage = _structure("VkPipelineShaderStageCreateInfo", *parts)
        create_info = _structure("VkComputePipelineCreateInfo", 0, stage.raw, layout.value, 0, -1)
        pipelines = (self._device, ctypes.c_uint64(), 1, create_info, None)
        pipeline = self._make("vkCreateComputePipelines", *pipelines)

        pool = self._create("DescriptorPool", 0, 1, 1, (ctypes.c_uint32 * 2)(_STORAGE, 1))
        create_info = _structure("VkDescriptorSetAllocateInfo", pool.value, 1, layouts)
        bound = self._make("vkAllocateDescriptorSets", self._device, create_info)
        part = (ctypes.c_uint64 * 3)(buffer, 0, _BYTES)
        write = _structure("VkWriteDescriptorSet", bound.value, 0, 0, 1, _STORAGE, 0, part, 0)
        self._opened.vkUpdateDescriptorSets(self._device, 1, write, 0, None)
        return pipeline, layout, bound

    def run(self, pipeline: "ctypes.c_uint64", layout: "ctypes.c_uint64", bound: "ctypes.c_uint64") -> None:
        """Run the shader once for each pair, and wait for it."""
        pool = self._create("CommandPool", 0, self._family)
        allocate_info = _structure("VkCommandBufferAllocateInfo", pool.value, 0, 1)
        commands = self._make("vkAllocateCommandBuffers", self._device, allocate_info)
        self._call("vkBeginCommandBuffer", commands, _structure("VkCommandBufferBeginInfo", 1, 0))
        self._opened.vkCmdBindPipeline(commands, _COMPUTE_POINT, pipeline)
        sets = (layout, 0, 1, ctypes.byref(bound), 0, None)
        self._opened.vkCmdBindDescriptorSets(commands, _COMPUTE_POINT, *sets)
        self._opened.vkCmdDispatch(commands, PAIRS // _GROUP, 1, 1)
        barrier = (1, _structure("VkMemoryBarrier", _SHADER_WRITES, _HOST_READS), 0, None, 0, None)
        self._opened.vkCmdPipelineBarrier(commands, _SHADER, _HOST, 0, *barrier)
        self._call("vkEndCommandBuffer", commands)
        batch = _structure("VkSubmitInfo", 0, 0, 0, 1, _array(commands), 0, 0)
        self._call("vkQueueSubmit", self._queue, 1, batch, ctypes.c_uint64())
        self._call("vkQueueWaitIdle", self._queue)

    def _create(self, kind: str, *members: object) -> "ctypes.c_uint64":
        """Return the handle of a new object of a kind, described by the members of its structure."""
        create_info = _structure(f"Vk{kind}CreateInfo", *members)
        return self._make(f"vkCreate{kind}", self._device, create_info, None)

    def _make(self, function: str, *arguments: object) -> "ctypes.c_uint64":
        """Return the handle that a function writes to its last argument, given those before."""
        handle = ctypes.c_uint64()
        self._call(function, *arguments, ctypes.byref(handle))
        return handle

    def _compute_family(self) -> int:
        """Return the first family of queues that can compute."""
        count = ctypes.c_uint32(_LIMIT)
        families = ctypes.create_string_buffer(_FAMILY_BYTES * _LIMIT)
        into = (self._gpu, ctypes.byref(count), families)
        self._opened.vkGetPhysicalDeviceQueueFamilyProperties(*into)
        for index in range(count.value):
            flags, queues = struct.unpack_from("II", families, index * _FAMILY_BYTES)
            if flags & _COMPUTE_QUEUE and queues:
                return index
        message = f"{self._name} has {count.value} families of queues, and none computes"
        raise NotUsable("unsupported-hardware", message)


def _array(handle: "ctypes.c_uint64") -> "ctypes.Array[ctypes.c_uint64]":
    return (ctypes.c_uint64 * 1)(handle)
